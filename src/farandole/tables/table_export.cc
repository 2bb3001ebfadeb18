#include "farandole/tables/table_export.h"

#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/log.h"
#include "farandole/tables/table_reader.h"
#include "farandole/tables/table_writer.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

template <class T>
T value_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The shortest text that gives the same number again; nothing for a NaN.
void append_number(std::string& line, DType dtype, const std::byte* at) {
  const auto append = [&](auto value) { fmt::format_to(std::back_inserter(line), "{}", value); };
  if (dtype == DType::int64) return append(value_at<std::int64_t>(at));
  const auto number = number_at(at, dtype);
  if (dtype == DType::boolean) return append(number != 0 ? "True" : "False");
  if (std::isnan(number)) return;
  if (dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32)
    append(static_cast<float>(number));
  else
    append(number);
}

void append_text(std::string& line, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) line += c == '"' ? "\"\"" : std::string(1, c);
  line += '"';
}

class CsvWriter {
 public:
  CsvWriter(const DataTable& table, const ClassNames& classes, const fs::path& file)
      : table_(table), file_(file.string()), fd_(::open(file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC)) {
    if (fd_.get() < 0) throw system_error("open", file_);
    for (const auto& name : table.other_columns()) read_texts(name);
    for (const auto& column : table.columns()) {
      const auto names = classes.find(column.name);
      classes_.push_back(names == classes.end() ? nullptr : &names->second);
      const auto values = column.row_bytes() / size_of(column.dtype);
      if (column.shape.empty()) names_.push_back(column.name);
      for (std::size_t i = 0; i < values && !column.shape.empty(); ++i)
        names_.push_back(fmt::format("{}_{}", column.name, i));
    }
    std::set<std::string> seen;
    for (const auto& name : names_) {
      if (!seen.insert(name).second)
        throw UserError(fmt::format("a CSV file of {} would have two columns {}; write an .h5 file",
                                    table.source(), name));
      next_field();
      append_text(text_, name);
    }
    end_row();
  }

  void write(const TableBatch& batch) {
    for (std::size_t row = 0; row < batch.rows.size(); ++row) {
      for (const auto& texts : texts_) {
        next_field();
        append_text(text_, texts[static_cast<std::size_t>(batch.rows[row])]);
      }
      for (std::size_t i = 0; i < batch.columns.size(); ++i) write_values(i, *batch.columns[i], row);
      end_row();
    }
  }
  void finish() { flush(0); }

 private:
  void read_texts(const std::string& name) {
    std::vector<std::string> texts;
    try {
      table_.read_text(name, [&](std::string_view text) { texts.emplace_back(text); });
    } catch (const UserError&) {
      log_warning("column {} of {} holds neither numbers nor a text in each row and is left out", name,
                  table_.source());
      return;
    }
    names_.push_back(name);
    texts_.push_back(std::move(texts));
  }
  void write_values(std::size_t i, const Bytes& bytes, std::size_t row) {
    const auto& column = table_.columns()[i];
    const auto size = size_of(column.dtype), values = column.row_bytes() / size;
    for (std::size_t k = 0; k < values; ++k) {
      const auto* at = bytes.data() + row * column.row_bytes() + k * size;
      next_field();
      if (classes_[i] == nullptr)
        append_number(text_, column.dtype, at);
      else
        append_text(text_, classes_[i]->at(static_cast<std::size_t>(column.dtype == DType::int32
                                                                        ? value_at<std::int32_t>(at)
                                                                        : value_at<std::int64_t>(at))));
    }
  }
  void next_field() {
    if (begun_) text_ += ',';
    begun_ = true;
  }
  void end_row() {
    text_ += '\n';
    begun_ = false;
    flush(std::size_t{1} << 20);
  }
  void flush(std::size_t limit) {
    if (text_.size() <= limit) return;
    write_bytes(fd_.get(), text_, file_);
    text_.clear();
  }

  const DataTable& table_;
  const std::string file_;
  OwnedDescriptor fd_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> texts_;
  std::vector<const std::vector<std::string>*>
      classes_;  // Of each column with numbers; nullptr: it has none.
  std::string text_;
  bool begun_ = false;  // This row has a field.
};

std::string npy_header(const DataColumn& column, std::int64_t rows) {
  const auto type = [&]() -> std::string_view {
    switch (column.dtype) {
      case DType::float16:
        return "<f2";
      case DType::float32:
        return "<f4";
      case DType::float64:
        return "<f8";
      case DType::int32:
        return "<i4";
      case DType::int64:
        return "<i8";
      case DType::uint8:
        return "|u1";
      case DType::boolean:
        return "|b1";
      case DType::int8:
        return "|i1";
      case DType::int16:
        return "<i2";
      default:
        throw UserError(fmt::format("NumPy has no type {}; write an .h5 file", name_of(column.dtype)));
    }
  }();
  auto shape = fmt::format("{},", rows);
  for (const auto extent : column.shape) shape += fmt::format(" {},", extent);
  auto text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  constexpr std::size_t start = 10, alignment = 64;
  text.resize((start + text.size() + alignment) / alignment * alignment - start - 1, ' ');
  text += '\n';
  const auto size = static_cast<std::uint16_t>(text.size());
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(size & 255) + static_cast<char>(size >> 8) +
         text;
}

// Reads the rows in their order.
std::int64_t read_all(const DataTable& table, const RowSelection& selection,
                      const std::function<void(std::int64_t rows)>& begin,
                      const std::function<void(const TableBatch&)>& use) {
  TableReaderOptions options;
  options.batch = 4096;
  options.shuffle = false;
  options.columns.resize(table.columns().size());
  std::iota(options.columns.begin(), options.columns.end(), std::size_t{0});
  TableReader reader(table, selection, options);
  begin(reader.selected_rows());
  reader.start(0);
  std::int64_t rows = 0;
  while (const auto batch = reader.next()) {
    use(*batch);
    rows += static_cast<std::int64_t>(batch->rows.size());
  }
  return rows;
}

}  // namespace

void warn_of_unusable_columns(const DataTable& table) {
  for (const auto& column : table.unusable_columns())
    if (column.elsewhere)
      throw UserError(fmt::format("column {} of {} cannot be written again: {}", column.name, table.source(),
                                  column.reason));
  for (const auto& column : table.unusable_columns())
    log_warning("column {} of {} is left out: {}", column.name, table.source(), column.reason);
}

TableFormat format_of_output(const fs::path& file) {
  const auto suffix = suffix_of(file);
  if (suffix == ".h5" || suffix == ".hdf5") return TableFormat::hdf5;
  if (suffix == ".csv") return TableFormat::csv;
  if (suffix == ".npy") return TableFormat::npy;
  throw UserError(
      fmt::format("--output {}: the suffix decides on the format; use .h5, .csv or, for one column, .npy",
                  file.string()));
}

std::int64_t export_rows(const DataTable& table, const RowSelection& selection, const fs::path& file,
                         const ClassNames& classes) {
  const auto format = format_of_output(file);
  if (format == TableFormat::hdf5) return write_rows(table, selection, file);
  if (format == TableFormat::npy && table.columns().size() != 1)
    throw UserError(
        fmt::format("{} cannot hold the {} columns of {}, because a NumPy file has one; use .h5 or .csv",
                    file.string(), table.columns().size(), table.source()));
  AtomicFile written(file);
  std::optional<CsvWriter> csv;
  OwnedDescriptor npy;
  const auto rows = read_all(
      table, selection,
      [&](std::int64_t all) {
        if (format == TableFormat::csv) {
          csv.emplace(table, classes, written.temporary());
          return;
        }
        npy = OwnedDescriptor(::open(written.temporary().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
        if (npy.get() < 0) throw system_error("open", written.temporary().string());
        write_bytes(npy.get(), npy_header(table.columns().front(), all), file.string());
      },
      [&](const TableBatch& batch) {
        if (csv) return csv->write(batch);
        const auto& bytes = *batch.columns.front();
        write_bytes(npy.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
      });
  if (csv) csv->finish();
  written.publish();
  return rows;
}

}  // namespace farandole
