// The readers of each kind of file, among which open_table() chooses, and what they share.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/tables/table.h"

namespace farandole {

// As open_table().
// Throws: UserError if the chosen columns have different numbers of rows.
std::unique_ptr<DataTable> open_hdf5_table(const std::filesystem::path& file,
                                           const std::vector<std::string>& columns, OtherColumns others);
// Plain or gzip. Types are found from the values: a column is bool if all are true or false, int64 if
// all are whole numbers, float64 if all are numbers or all are true or false (an empty field is NaN),
// and text otherwise.
// Throws: CorruptInput with the line and the column; UserError if another character than the comma separates
// the columns, the file is UTF-16, or its first line is a remark.
std::unique_ptr<DataTable> read_csv_table(const std::filesystem::path& file);
std::unique_ptr<DataTable> open_npy_table(const std::filesystem::path& file);
bool is_idx_table(const std::filesystem::path& file);
std::unique_ptr<DataTable> read_idx_table(const std::filesystem::path& file);

// A table in memory.
class MemoryTable : public DataTable {
 public:
  MemoryTable(std::string source, std::int64_t rows) {
    source_ = std::move(source);
    rows_ = rows;
  }
  // `bytes` holds the column row after row.
  void add(DataColumn column, std::vector<std::byte> bytes) {
    columns_.push_back(std::move(column));
    data_.push_back(std::move(bytes));
  }
  void add_other(std::string name, std::string first_text = {}) {
    first_texts_[name] = std::move(first_text);
    other_columns_.push_back(std::move(name));
  }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  void read(std::size_t column, std::int64_t first, std::int64_t count,
            std::span<std::byte> out) const override {
    const auto size = columns_[column].row_bytes();
    if (!out.empty())
      std::memcpy(out.data(), data_[column].data() + static_cast<std::size_t>(first) * size,
                  static_cast<std::size_t>(count) * size);
  }
  void read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                   Bytes&) const override {
    const auto size = columns_[column].row_bytes();
    for (const auto& [rows, to] : pieces) {
      if (to != nullptr) read(column, first, rows, {to, static_cast<std::size_t>(rows) * size});
      first += rows;
    }
  }
  std::int64_t chunk_rows(std::size_t) const override { return 1; }

 private:
  std::vector<std::vector<std::byte>> data_;
};

// A column whose rows lie one after another in a file.
class FileColumn {
 public:
  // `fd` must outlive this object. `source` is the name of the file for messages.
  FileColumn(int fd, std::uint64_t offset, std::size_t row_bytes, std::string source)
      : fd_(fd), offset_(offset), row_bytes_(row_bytes), source_(std::move(source)) {}

  // As DataTable's.
  void read(std::int64_t first, std::span<std::byte> out) const;
  void read_pieces(std::int64_t first, std::span<const RowPiece> pieces, Bytes& scratch) const;

 private:
  std::uint64_t offset_of(std::int64_t row) const {
    return offset_ + static_cast<std::uint64_t>(row) * row_bytes_;
  }

  int fd_;
  std::uint64_t offset_;
  std::size_t row_bytes_;
  std::string source_;
};

}  // namespace farandole
