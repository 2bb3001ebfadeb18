// farandole table: shows the columns of a table, or splits it at random.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/text/phrases.h"
#include "farandole/tables/table_export.h"

namespace farandole {
namespace {

int show(const DataTable& table) {
  fmt::print("{}: {} rows\n", printable(table.source()), table.rows());
  std::size_t width = 0;
  for (const auto& column : table.columns()) width = std::max(width, column.name.size());
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    const auto& column = table.columns()[i];
    fmt::print("{:<{}}  {:<8}  [{}]{}\n", printable(column.name), width, name_of(column.dtype),
               fmt::join(column.shape, ", "),
               table.chunk_rows(i) > 1 ? fmt::format("  chunks of {} rows", table.chunk_rows(i)) : "");
  }
  for (const auto& name : table.other_columns()) {
    const auto text = table.first_text(name);
    fmt::print("{:<{}}  not a column of numbers{}\n", printable(name), width,
               text.empty() ? "" : ": " + printable(text));
  }
  for (const auto& column : table.unusable_columns())
    fmt::print("{:<{}}  cannot be used: {}\n", printable(column.name), width, printable(column.reason));
  return 0;
}

std::vector<double> parse_fractions(const std::string& text) {
  std::vector<double> fractions;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto word = text.substr(begin, end - begin);
    std::size_t used = 0;
    try {
      fractions.push_back(std::stod(word, &used));
    } catch (const std::logic_error&) {
    }
    if (used != word.size() || word.empty())
      throw UserError(
          fmt::format("--fractions {}: '{}' is not a number; write for example 0.9,0.1", text, word));
    begin = end + 1;
  }
  return fractions;
}

int run(int argc, const char* const* argv) {
  std::string command, files, fractions = "0.9,0.1";
  std::vector<std::string> outputs;
  std::uint64_t seed = 1;
  OptionParser parser;
  parser.usage =
      "Usage: farandole table show TABLE\n"
      "  or:  farandole table split TABLE --output FILE --output FILE... [--fractions 0.9,0.1] [--seed 1]\n\n"
      "Shows the columns of a table, or splits its rows at random into files, which are HDF5 (.h5), CSV (.csv)\n"
      "or, for one column, NumPy (.npy). TABLE is an HDF5, CSV, NumPy or IDX file, or several of them joined by commas;\n"
      "NAME=FILE gives the column of a NumPy or IDX file a name.\n\n"
      "Examples:\n"
      "  $ farandole table show train.h5\n"
      "  $ farandole table split data.h5 --fractions 0.9,0.1 --output train.h5 --output test.h5\n";
  namespace po = boost::program_options;
  parser.visible.add_options()("fractions", po::value(&fractions)->default_value(fractions),
                               "the share of the rows of each part; they add up to 1")(
      "seed", po::value(&seed)->default_value(seed), "the same seed gives the same parts")(
      "output,o", po::value(&outputs),
      "the file of each part; its suffix decides on the format; give one for each fraction")(
      "command", po::value(&command), "show or split (first positional argument)")(
      "table", po::value(&files), "the table (second positional argument)");
  parser.positional.add("command", 1).add("table", 1);
  if (!parser.parse(argc, argv)) return 0;
  if (command != "show" && command != "split") {
    const auto nearest = nearest_name(command, {"show", "split"});
    throw UserError((command.empty() ? "no command given" : "unknown command '" + command + "'") +
                    (nearest.empty() ? "; there are show and split" : "; did you mean " + nearest + "?"));
  }
  if (files.empty()) throw UserError(command + " needs a table");
  const auto table = open_table(files);
  for (const auto& warning : table->warnings()) log_warning("{}", warning);
  if (command == "show") return show(*table);
  const auto parts = parse_fractions(fractions);
  if (outputs.size() != parts.size())
    throw UserError(fmt::format("there are {} fractions and {} outputs; give --output for each fraction",
                                parts.size(), outputs.size()));
  const auto selections = random_split(table->rows(), parts, seed);
  warn_of_unusable_columns(*table);
  std::size_t with_texts = 0;
  for (const auto& file : outputs) with_texts += format_of_output(file) == TableFormat::csv ? 1 : 0;
  if (with_texts < outputs.size())
    for (const auto& name : table->other_columns())
      log_warning("column {} of {} does not hold numbers and is left out", name, table->source());
  for (std::size_t i = 0; i < parts.size(); ++i)
    fmt::print("{}: {} rows\n", outputs[i], export_rows(*table, selections[i], outputs[i]));
  return 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  farandole::set_up_log();
  return farandole::run_main("farandole table", [&] { return farandole::run(argc, argv); });
}
