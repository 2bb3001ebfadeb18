// A table in memory.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "farandole/tables/table.h"

namespace farandole {

class MemoryTable final : public DataTable {
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
  void add_other(std::string name) { other_columns_.push_back(std::move(name)); }

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

}  // namespace farandole
