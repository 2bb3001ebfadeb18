// farandole checkpoint: lists, shows, verifies, compares and exports the checkpoints of a run.
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/phrases.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/compare_checkpoints.h"
#include "farandole/checkpoint/safetensors.h"

namespace farandole {
namespace {

// Returns the checkpoint files, newest first.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw UserError(path.string() + " does not exist; give a run directory or a checkpoint file");
  if (!std::filesystem::is_directory(path)) return {path};
  const auto inside = path / "checkpoints";
  const auto folder = std::filesystem::is_directory(inside) ? inside : path;
  auto files = checkpoint_files(folder);
  if (files.empty()) throw CorruptInput("there is no checkpoint in " + folder.string());
  return files;
}

std::string score_text(double score) {
  return std::isnan(score) ? "-" : fmt::format("{:.6g}", score);
}

int list(const std::vector<std::filesystem::path>& files) {
  fmt::print("{:<20} {:>12} {:>8} {:>12} {:>14}\n", "file", "step", "epoch", "score", "bytes");
  for (const auto& file : files) {
    try {
      const auto info = read_checkpoint_info(file);
      fmt::print("{:<20} {:>12} {:>8} {:>12} {:>14}{}\n", printable(file.filename().string()), info.step,
                 info.epoch, score_text(info.score), info.bytes,
                 info.not_finite.empty() ? "" : "  not finite: " + printable(info.not_finite));
    } catch (const CorruptInput& error) {
      fmt::print("{:<20} unreadable: {}\n", printable(file.filename().string()), printable(error.what()));
    }
  }
  return 0;
}

int show(const std::filesystem::path& file) {
  const auto header = read_checkpoint_header(file);
  fmt::print(
      "file            {}\nformat_version  {}\nstep            {}\nepoch           {}\nworld_size      {}\n"
      "score           {}\nbest score      {} (step {})\nversions        {}\nconfig          {}\n\n",
      printable(file.string()), header.format_version, header.step, header.epoch, header.world_size,
      score_text(header.score), score_text(header.best_score), header.best_step, printable(header.versions),
      printable(header.config));
  std::size_t width = 0;
  for (const auto& array : header.arrays) width = std::max(width, array.path.size());
  for (const auto& array : header.arrays)
    fmt::print("{:<{}}  {:<8}  [{}]\n", printable(array.path), width, name_of(array.dtype),
               fmt::join(array.shape, ", "));
  return 0;
}

int verify(const std::vector<std::filesystem::path>& files) {
  int unusable = 0;
  for (const auto& file : files) {
    try {
      const auto header = verify_checkpoint(file);
      if (!header.not_finite.empty())
        throw CorruptInput(file.string() + ": the file is whole, but " + header.not_finite +
                           " has a NaN or an infinity; use another checkpoint");
      fmt::print("{}: good\n", printable(file.string()));
    } catch (const CorruptInput& error) {
      ++unusable;
      fmt::print(stderr, "farandole checkpoint: {}\n", printable(error.what()));
    }
  }
  return unusable == 0 ? 0 : static_cast<int>(ExitCode::corrupt_input);
}

int diff(const std::filesystem::path& first, const std::filesystem::path& second) {
  const auto differences = compare_checkpoints(first, second);
  std::size_t width = 0;
  for (const auto& one : differences) width = std::max(width, one.path.size());
  for (const auto& one : differences)
    fmt::print("{:<{}}  {}\n", printable(one.path), width,
               one.kind.empty() ? fmt::format("{} of {} elements differ, by at most {:.6g}", one.different,
                                              one.elements, one.largest)
                                : one.kind);
  if (differences.empty()) fmt::print("all arrays are equal\n");
  return differences.empty() ? 0 : static_cast<int>(ExitCode::failure);
}

int write_export(const std::filesystem::path& file, const std::string& format, std::filesystem::path output) {
  if (format != "safetensors") throw UserError("--to cannot be '" + format + "'; it is safetensors");
  if (output.empty()) output = file.filename().replace_extension("safetensors");
  const auto tensors = export_safetensors(file, output);
  fmt::print("{}: {} tensors of {}\n", output.string(), tensors, file.string());
  return 0;
}

int run(int argc, char** argv) {
  std::string command, format = "safetensors", output;
  std::vector<std::string> paths;
  OptionParser parser;
  parser.usage =
      "Usage: farandole checkpoint list|show|verify RUN|FILE\n"
      "  or:  farandole checkpoint diff RUN|FILE RUN|FILE\n"
      "  or:  farandole checkpoint export RUN|FILE [--to safetensors] [--output FILE]\n\n"
      "Lists, shows, verifies, compares or exports checkpoints. If RUN is given instead of FILE, show, diff and\n"
      "export take its newest checkpoint.\n\n"
      "Commands:\n"
      "  list    list the checkpoints, newest first\n"
      "  show    print the attributes, and the type and shape of every data set\n"
      "  verify  read everything and compare checksums; the exit code is 65 if a checkpoint is damaged or has a\n"
      "          NaN or an infinity\n"
      "  diff    print the arrays that differ, how many elements do, and by how much; the exit code is 1 if\n"
      "          there are any\n"
      "  export  write parameters and buffers in another format\n\n"
      "Examples:\n"
      "  $ farandole checkpoint verify RUN\n"
      "  $ farandole checkpoint export RUN --output model.safetensors\n";
  namespace po = boost::program_options;
  parser.visible.add_options()("to", po::value(&format)->default_value(format),
                               "format of export: safetensors")(
      "output,o", po::value(&output), "file of export; the default is the checkpoint's name in this folder")(
      "command", po::value(&command), "list, show, verify, diff or export (first positional argument)")(
      "path", po::value(&paths), "run directory or checkpoint file (further positional arguments)");
  parser.positional.add("command", 1).add("path", -1);
  if (!parser.parse(argc, argv)) return 0;

  const std::vector<std::string> commands = {"list", "show", "verify", "diff", "export"};
  if (std::find(commands.begin(), commands.end(), command) == commands.end()) {
    const auto nearest = nearest_name(command, commands);
    throw UserError((command.empty() ? "no command given" : "unknown command '" + command + "'") +
                    (nearest.empty() ? "; there are list, show, verify, diff and export"
                                     : "; did you mean " + nearest + "?"));
  }
  const std::size_t wanted = command == "diff" ? 2 : 1;
  if (paths.size() != wanted)
    throw UserError(wanted == 2 ? "diff needs two run directories or checkpoint files"
                                : command + " needs a run directory or a checkpoint file");
  const auto files = files_at(paths.front());
  if (command == "list") return list(files);
  if (command == "show") return show(files.front());
  if (command == "diff") return diff(files.front(), files_at(paths.back()).front());
  if (command == "export") return write_export(files.front(), format, output);
  return verify(files);
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  farandole::set_up_log();
  return farandole::run_main("farandole checkpoint", [&] { return farandole::run(argc, argv); });
}
