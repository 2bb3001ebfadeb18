#include "farandole/tables/class_columns.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// More different texts than a model has outputs: names or identifiers, no classes.
constexpr std::size_t most_classes = 100'000;

class NumberedTable final : public DataTable {
 public:
  explicit NumberedTable(std::shared_ptr<const DataTable> table) : table_(std::move(table)) {
    columns_ = table_->columns();
    add_others(*table_);
    rows_ = table_->rows();
    source_ = table_->source();
  }

  // A number below 0 is an empty text, which becomes a NaN.
  void add(const std::string& name, const std::vector<std::int32_t>& numbers) {
    std::erase(other_columns_, name);
    const bool has_gaps = std::ranges::any_of(numbers, [](std::int32_t number) { return number < 0; });
    columns_.push_back({name, has_gaps ? DType::float64 : DType::int32, {}});
    auto& bytes = bytes_.emplace_back(numbers.size() * columns_.back().row_bytes());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double number = numbers[i] < 0 ? std::numeric_limits<double>::quiet_NaN() : numbers[i];
      if (has_gaps)
        std::memcpy(&bytes[i * sizeof number], &number, sizeof number);
      else
        std::memcpy(&bytes[i * sizeof numbers[i]], &numbers[i], sizeof numbers[i]);
    }
  }

  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  void read(std::size_t column, std::int64_t first, std::int64_t count,
            std::span<std::byte> out) const override {
    if (column < table_->columns().size()) return table_->read(column, first, count, out);
    if (!out.empty())
      std::memcpy(out.data(),
                  bytes_[column - table_->columns().size()].data() +
                      static_cast<std::size_t>(first) * columns_[column].row_bytes(),
                  out.size());
  }
  void read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                   Bytes& scratch) const override {
    if (column < table_->columns().size()) return table_->read_pieces(column, first, pieces, scratch);
    copy_pieces(pieces, columns_[column].row_bytes(), scratch,
                [&](std::int64_t rows, std::span<std::byte> out) { read(column, first, rows, out); });
  }
  std::int64_t chunk_rows(std::size_t column) const override {
    return column < table_->columns().size() ? table_->chunk_rows(column) : 1;
  }
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) const override {
    table_->read_text(name, use);
  }

 private:
  std::shared_ptr<const DataTable> table_;
  std::vector<std::vector<std::byte>> bytes_;
};

// The classes of a column: all its different texts but the empty one, sorted.
std::vector<std::string> classes_of(const DataTable& table, const std::string& name) {
  std::map<std::string, int, std::less<>> found;
  table.read_text(name, [&](std::string_view text) {
    if (found.size() <= most_classes && !text.empty() && !found.contains(text)) found.emplace(text, 0);
  });
  if (found.size() > most_classes)
    throw UserError(fmt::format(
        "column {} of {} has more than {} different texts, which are no classes; choose another label", name,
        table.source(), most_classes));
  std::vector<std::string> classes;
  for (const auto& [text, number] : found) classes.push_back(text);
  try {
    exact_json_text(classes);  // As they are kept.
  } catch (const Json::exception&) {
    throw UserError(
        fmt::format("column {} of {} has a text that is not UTF-8; convert the file, for example with iconv",
                    name, table.source()));
  }
  return classes;
}

std::vector<std::int32_t> numbers_of(const DataTable& table, const std::string& name,
                                     const std::vector<std::string>& classes) {
  std::map<std::string_view, std::int32_t> numbers;
  for (const auto& text : classes) numbers.emplace(text, static_cast<std::int32_t>(numbers.size()));
  std::vector<std::int32_t> of_rows;
  std::string unknown;
  std::size_t unknown_row = 0;
  bool all_known = true;
  of_rows.reserve(static_cast<std::size_t>(table.rows()));
  table.read_text(name, [&](std::string_view text) {  // It must not throw.
    const auto number = numbers.find(text);
    if (number == numbers.end() && text.empty()) return of_rows.push_back(-1);
    if (number == numbers.end() && all_known) {
      all_known = false;
      unknown = text;
      unknown_row = of_rows.size();
    }
    of_rows.push_back(number == numbers.end() ? 0 : number->second);
  });
  if (all_known) return of_rows;
  constexpr std::size_t most_shown = 10;
  const auto shown = std::min(classes.size(), most_shown);
  throw UserError(fmt::format(
      "{}: column {} has the class '{}' in row {}, with which the model was not trained; its classes are {}{}",
      table.source(), name, unknown, unknown_row,
      fmt::join(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < classes.size() ? fmt::format(" and {} more", classes.size() - shown) : ""));
}

// A column of true and false has the numbers of the classes False and True, which a model may have
// been trained on.
bool holds(const DataTable& table, const std::string& name, const std::vector<std::string>& classes) {
  if (classes.size() != 2 || table.columns()[table.index_of(name)].dtype != DType::boolean) return false;
  return (classes[0] == "False" && classes[1] == "True") || (classes[0] == "false" && classes[1] == "true");
}

}  // namespace

std::shared_ptr<const DataTable> number_classes(std::shared_ptr<const DataTable> table,
                                                const std::vector<std::string>& columns,
                                                ClassNames& classes) {
  auto numbered = std::make_shared<NumberedTable>(table);
  bool changed = false;
  for (const auto& name : columns) {
    const auto& texts = table->other_columns();
    if (std::ranges::count(texts, name) == 0) {
      if (classes.contains(name) && table->has(name) && !holds(*table, name, classes[name]))
        throw UserError(fmt::format(
            "column {} of {} holds numbers, and the model was trained on the classes {}; write the names of the classes",
            name, table->source(), fmt::join(classes[name], ", ")));
      continue;
    }
    if (!classes.contains(name)) {
      classes[name] = classes_of(*table, name);
      if (std::ranges::any_of(classes[name],
                              [](const auto& text) { return parse_number<double>(text).has_value(); }))
        numbered->warn(fmt::format(
            "column {} of {} has numbers and texts{}, so all its values are names of classes", name,
            table->source(), table->first_text(name).empty() ? "" : " (" + table->first_text(name) + ")"));
    }
    numbered->add(name, numbers_of(*table, name, classes[name]));
    changed = true;
  }
  return changed ? numbered : table;
}

}  // namespace farandole
