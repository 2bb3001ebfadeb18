#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <csv.h>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/tables/formats.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

// Whether a number that float64 cannot hold is too small for it; otherwise it is too large.
bool is_tiny(std::string_view number) {
  const auto end = std::min(number.find_first_of("eE"), number.size());
  const auto digits = number.substr(0, end);
  auto power = number.substr(std::min(end + 1, number.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  std::int64_t exponent = 0;
  if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec ==
      std::errc::result_out_of_range)
    return power.starts_with('-');
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size())),
             first = static_cast<std::int64_t>(std::min(digits.find_first_of("123456789"), digits.size()));
  return exponent < first - point;
}

// A number below the least one of float64 is 0, and a plus sign may come first.
std::optional<double> number_in(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size() || field.empty()) return std::nullopt;
  if (error == std::errc()) return value;
  if (error == std::errc::result_out_of_range && is_tiny(field)) return field.starts_with('-') ? -0.0 : 0.0;
  return std::nullopt;
}

// How often each of these is in a line, outside of quotes.
struct Separators {
  static constexpr std::string_view known = ",;\t|";
  std::array<std::size_t, known.size()> count{};

  explicit Separators(std::string_view line) {
    bool in_quotes = false;
    for (const char c : line) {
      if (c == '"') in_quotes = !in_quotes;
      if (const auto place = known.find(c); place != known.npos && !in_quotes) ++count[place];
    }
  }
};

std::string_view take_line(std::string_view& text) {
  bool in_quotes = false;
  std::size_t end = 0;
  for (; end < text.size() && (in_quotes || (text[end] != '\n' && text[end] != '\r')); ++end)
    if (text[end] == '"') in_quotes = !in_quotes;
  const auto line = text.substr(0, end);
  text.remove_prefix(std::min(text.find_first_not_of("\r\n", end), text.size()));
  return line;
}

bool has_number(std::string_view line) {
  for (std::size_t begin = 0; begin <= line.size();) {
    const auto end = std::min(line.find(',', begin), line.size());
    if (number_in(line.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

// A first line such as "# a,b" above numbers names columns, as numpy.savetxt writes it.
// Throws: UserError if the first two lines are separated by something else than commas, are no text in
// bytes, or begin with a remark.
void check_start(std::string_view text, const std::string& file) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw UserError(fmt::format("{} is a text in UTF-16; convert it with iconv -f UTF-16 -t UTF-8", file));
  const auto header = take_line(text), row = take_line(text);
  const Separators in_header(header), in_row(row.empty() ? header : row);
  const bool is_remark =
      header.starts_with('#') && !row.empty() && (in_header.count[0] != in_row.count[0] || !has_number(row));
  if (in_header.count[0] > 0 && in_header.count[0] == in_row.count[0] && !is_remark) return;
  constexpr std::array names = {"commas", "semicolons", "tabs", "vertical bars"};
  for (std::size_t i = 1; i < names.size(); ++i) {
    const bool is_announced = header == std::string("sep=") + Separators::known[i];  // As Excel does it.
    if (!is_announced && (in_header.count[i] == 0 || in_header.count[i] != in_row.count[i])) continue;
    bool decimal_comma = false;
    for (std::size_t k = 1; k + 1 < row.size(); ++k)
      decimal_comma |= row[k] == ',' && std::isdigit(static_cast<unsigned char>(row[k - 1])) != 0 &&
                       std::isdigit(static_cast<unsigned char>(row[k + 1])) != 0;
    throw UserError(fmt::format(
        "{}: {} separate its columns{}; separate them by commas, for example in Python with pandas.read_csv(FILE, "
        "sep='{}'{}).to_csv(OTHER, index=False)",
        file, names[i], decimal_comma ? ", and its numbers have decimal commas" : "",
        Separators::known[i] == '\t' ? "\\t" : std::string(1, Separators::known[i]),
        decimal_comma ? ", decimal=','" : ""));
  }
  if (is_remark)
    throw UserError(file + ": line 1 is a remark (#); remove it, so that the first line names the columns");
}

// As pandas and others write a value of true or false.
std::optional<bool> flag_in(std::string_view field) {
  for (const bool value : {false, true})
    for (const std::string_view text :
         value ? std::array{"True", "true", "TRUE"} : std::array{"False", "false", "FALSE"})
      if (field == text) return value;
  return std::nullopt;
}

// One column while its type is not known. All fields of `empty` were empty. It is boolean while all others
// are true or false, or else it narrows from whole numbers to numbers to text.
struct CsvColumn {
  enum class Type { empty, boolean, integer, number, text };
  std::string name;
  Type type = Type::empty;
  std::vector<std::int64_t> integers{};
  std::vector<double> numbers{};  // Also those of `empty` and `boolean`.
  std::string first_text{};       // And its line.
  bool has_gaps = false;          // It has empty fields.

  void take(std::string_view field, std::int64_t line) {
    has_gaps |= field.empty();
    if (type == Type::empty || type == Type::boolean) {
      if (field.empty()) return numbers.push_back(std::numeric_limits<double>::quiet_NaN());
      if (const auto flag = flag_in(field)) {
        type = Type::boolean;
        return numbers.push_back(*flag ? 1 : 0);
      }
      if (type == Type::boolean) return become_text(field, line);
      type = numbers.empty() ? Type::integer : Type::number;
    }
    if (type == Type::integer) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (error == std::errc() && end == field.data() + field.size()) return integers.push_back(value);
      numbers.assign(integers.begin(), integers.end());
      integers = {};
      type = Type::number;
    }
    if (type == Type::number) {
      const auto value = field.empty() ? std::numeric_limits<double>::quiet_NaN() : number_in(field);
      if (value) return numbers.push_back(*value);
      become_text(field, line);
    }
  }

  void become_text(std::string_view field, std::int64_t line) {
    numbers = {};
    type = Type::text;
    constexpr std::size_t most_shown = 40;
    first_text = fmt::format("line {} has '{}{}'", line, field.substr(0, most_shown),
                             field.size() > most_shown ? "…" : "");
  }

  // Moves the values into a table. A column that is true, false or empty has numbers.
  void move_to(MemoryTable& table) {
    if (type == Type::text) return table.add_other(name, first_text);
    if (type == Type::integer || numbers.empty())
      return table.add({name, DType::int64, {}}, bytes_of_column(integers));
    if (type != Type::boolean || has_gaps)
      return table.add({name, DType::float64, {}}, bytes_of_column(numbers));
    table.add({name, DType::boolean, {}},
              bytes_of_column(std::vector<std::uint8_t>(numbers.begin(), numbers.end())));
  }

  template <class T>
  static std::vector<std::byte> bytes_of_column(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
};

// A table in memory, except its texts, for which the file is read again.
class CsvTable final : public MemoryTable {
 public:
  using MemoryTable::MemoryTable;
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) const override;
};

class CsvReader {
 public:
  explicit CsvReader(const std::filesystem::path& file)
      : file_(file.string()), bytes_(InflatedFile::open(file)) {
    if (!bytes_) throw UserError(fmt::format("cannot open {}: {}", file_, std::strerror(errno)));
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
  }
  ~CsvReader() { csv_free(&parser_); }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  std::unique_ptr<DataTable> read() {
    read_file();
    auto table = std::make_unique<CsvTable>(file_, rows_);
    for (auto& column : columns_) {
      column.move_to(*table);
      column = {};
    }
    if (!number_in_header_.empty())
      table->warn(
          fmt::format("{}: the first line should name the columns, and '{}' in it is a number; if it is "
                      "a row, write a line with names above it",
                      file_, number_in_header_));
    return table;
  }
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) {
    text_name_ = name;
    use_text_ = &use;
    read_file();
  }

 private:
  void read_file() {
    std::vector<char> buffer(std::size_t{1} << 20);
    bool at_start = true;
    while (const auto got = bytes_->read(buffer.data(), buffer.size())) {
      std::string_view text(buffer.data(), got);
      constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
      if (at_start && text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
      if (std::exchange(at_start, false)) check_start(text, file_);
      parse(text);
    }
    if (!bytes_->damage().empty())
      throw CorruptInput(fmt::format("{}: {}, at line {}; copy it again", file_, bytes_->damage(), line_));
    if (csv_fini(&parser_, on_field, on_row, this) != 0)
      fail("a quoted field does not end", "close the quotes");
    rethrow();
    if (columns_.empty())
      throw UserError(file_ + " is empty; the first line of a CSV file names its columns");
  }

  // Line by line, so that a message can name the line.
  void parse(std::string_view text) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size() - 1) + 1;
      if (csv_parse(&parser_, text.data(), end, on_field, on_row, this) != end)
        fail(fmt::format("column {} is not valid CSV", field_ + 1),
             "write a quote within a quoted field twice");
      rethrow();
      if (text[end - 1] == '\n') ++line_;
      text.remove_prefix(end);
    }
  }

  // No exception may pass through the library, which is written in C.
  static void on_field(void* text, std::size_t size, void* reader) {
    auto& self = *static_cast<CsvReader*>(reader);
    if (!self.error_) self.take({static_cast<const char*>(text), size});
  }
  static void on_row(int, void* reader) {
    auto& self = *static_cast<CsvReader*>(reader);
    if (!self.error_) self.end_row();
  }

  void take(std::string_view field) {
    if (field_ == 0) is_remark_ = field.starts_with('#');
    if (rows_ < 0) {
      columns_.push_back({std::string(field)});
      // A name such as inf is none.
      if (number_in_header_.empty() && number_in(field) && field.find_first_of("0123456789") != field.npos)
        number_in_header_ = field;
    } else if (field_ < columns_.size() && use_text_ == nullptr) {
      columns_[field_].take(field, line_);
    } else if (field_ < columns_.size() && columns_[field_].name == text_name_) {
      (*use_text_)(field);
    }
    ++field_;
  }
  void end_row() {
    if (rows_ >= 0 && field_ != columns_.size() && is_remark_)
      error_ = fmt::format("{}: line {} is a remark (#); remove it", file_, line_);
    else if (rows_ >= 0 && field_ != columns_.size())
      error_ =
          fmt::format("{}: line {} has {} column{}, and the header has {}; {}", file_, line_, field_,
                      field_ == 1 ? "" : "s", columns_.size(),
                      field_ < columns_.size() ? "the first one that is missing is " + columns_[field_].name
                                               : "quote fields that contain commas");
    ++rows_;
    field_ = 0;
  }
  void rethrow() const {
    if (error_) throw CorruptInput(*error_);
  }
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const {
    throw CorruptInput(fmt::format("{}: line {}: {}; {}", file_, line_, what, remedy));
  }

  std::string file_;
  std::unique_ptr<InflatedFile> bytes_;
  csv_parser parser_{};
  std::vector<CsvColumn> columns_;
  std::int64_t rows_ = -1;  // -1: the header has not ended
  std::int64_t line_ = 1;
  std::size_t field_ = 0;
  bool is_remark_ = false;  // The line begins with #.
  std::optional<std::string> error_;
  std::string number_in_header_;
  // If only the texts of one column are read.
  std::string text_name_;
  const std::function<void(std::string_view)>* use_text_ = nullptr;
};

void CsvTable::read_text(const std::string& name, const std::function<void(std::string_view)>& use) const {
  if (std::ranges::count(other_columns(), name) == 0) return DataTable::read_text(name, use);
  CsvReader(source_).read_text(name, use);
}

}  // namespace

std::unique_ptr<DataTable> read_csv_table(const std::filesystem::path& file) {
  return CsvReader(file).read();
}

}  // namespace farandole
