// A column whose rows lie one after another in a file.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farandole/tables/table.h"

namespace farandole {

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
