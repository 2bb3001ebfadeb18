#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <csv.h>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

// One column while its type is not known: it narrows from whole numbers to numbers to text.
struct CsvColumn {
  enum class Type { integer, number, text };
  std::string name;
  Type type = Type::integer;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;

  void take(std::string_view field) {
    if (type == Type::integer) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (error == std::errc() && end == field.data() + field.size()) return integers.push_back(value);
      numbers.assign(integers.begin(), integers.end());
      integers = {};
      type = Type::number;
    }
    if (type == Type::number) {
      double value = std::numeric_limits<double>::quiet_NaN();
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (field.empty() || (error == std::errc() && end == field.data() + field.size()))
        return numbers.push_back(value);
      numbers = {};
      type = Type::text;
    }
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
  explicit CsvReader(const std::filesystem::path& file) : file_(file.string()), fd_(open_regular_file(file)) {
    if (fd_.get() < 0) throw UserError(fmt::format("cannot open {}: {}", file_, std::strerror(errno)));
    csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
  }
  ~CsvReader() { csv_free(&parser_); }
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  std::unique_ptr<DataTable> read() {
    read_file();
    auto table = std::make_unique<CsvTable>(file_, rows_);
    for (auto& column : columns_) {
      if (column.type == CsvColumn::Type::text) table->add_other(column.name);
      if (column.type == CsvColumn::Type::integer)
        table->add({column.name, DType::int64, {}}, CsvColumn::bytes_of_column(column.integers));
      if (column.type == CsvColumn::Type::number)
        table->add({column.name, DType::float64, {}}, CsvColumn::bytes_of_column(column.numbers));
      column = {};
    }
    return table;
  }
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) {
    text_name_ = name;
    use_text_ = &use;
    read_file();
  }

 private:
  void read_file() {
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (std::uint64_t offset = 0;;) {
      const auto got = read_bytes(fd_.get(), offset, buffer, file_);
      if (got == 0) break;
      std::string_view text(reinterpret_cast<const char*>(buffer.data()), got);
      constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
      if (offset == 0 && text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
      offset += got;
      parse(text);
    }
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
    if (rows_ < 0) {
      columns_.push_back({std::string(field), CsvColumn::Type::integer, {}, {}});
    } else if (field_ < columns_.size() && use_text_ == nullptr) {
      columns_[field_].take(field);
    } else if (field_ < columns_.size() && columns_[field_].name == text_name_) {
      (*use_text_)(field);
    }
    ++field_;
  }
  void end_row() {
    if (rows_ >= 0 && field_ != columns_.size())
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
  OwnedDescriptor fd_;
  csv_parser parser_{};
  std::vector<CsvColumn> columns_;
  std::int64_t rows_ = -1;  // -1: the header has not ended
  std::int64_t line_ = 1;
  std::size_t field_ = 0;
  std::optional<std::string> error_;
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
