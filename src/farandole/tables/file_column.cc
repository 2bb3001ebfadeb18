#include <array>
#include <cerrno>
#include <sys/uio.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

// Shorter pieces are cheaper to copy from memory than to name to the kernel one by one.
constexpr std::size_t least_piece_bytes = 1024;
// Skipping fewer bytes than this costs more than reading them.
constexpr std::size_t most_unused_bytes = std::size_t{64} << 10;

// Collects pieces of memory and fills them from consecutive bytes of a file.
class ScatteredRead {
 public:
  ScatteredRead(int fd, std::uint64_t offset, const std::string& source)
      : fd_(fd), offset_(offset), source_(source) {}

  void add(std::byte* to, std::size_t bytes) {
    if (count_ == pieces_.size()) finish();
    pieces_[count_++] = {to, bytes};
  }

  void leave_out(std::size_t bytes) {
    if (bytes <= unused_.size()) return add(unused_.data(), bytes);
    finish();
    offset_ += bytes;
  }

  void finish() {
    for (std::size_t next = 0; next < count_;) {
      const auto got =
          ::preadv(fd_, &pieces_[next], static_cast<int>(count_ - next), static_cast<off_t>(offset_));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw system_error("read", source_);
      if (got == 0) throw CorruptInput(source_ + ": the file has become shorter while it was read");
      offset_ += static_cast<std::uint64_t>(got);
      auto left = static_cast<std::size_t>(got);
      for (; next < count_ && left >= pieces_[next].iov_len; ++next) left -= pieces_[next].iov_len;
      if (left == 0) continue;
      pieces_[next].iov_base = static_cast<std::byte*>(pieces_[next].iov_base) + left;
      pieces_[next].iov_len -= left;
    }
    count_ = 0;
  }

 private:
  const int fd_;
  std::uint64_t offset_;
  const std::string& source_;
  std::array<iovec, 1024> pieces_;  // As many as Linux takes at once.
  std::size_t count_ = 0;
  std::array<std::byte, most_unused_bytes> unused_;
};

}  // namespace

void FileColumn::read(std::int64_t first, std::span<std::byte> out) const {
  if (read_bytes(fd_, offset_of(first), out, source_) < out.size())
    throw CorruptInput(source_ + ": the file has become shorter while it was read");
}

void FileColumn::read_pieces(std::int64_t first, std::span<const RowPiece> pieces, Bytes& scratch) const {
  std::int64_t rows = 0;
  for (const auto& piece : pieces) rows += piece.to != nullptr ? piece.rows : 0;
  if (pieces.size() > 1 && static_cast<std::size_t>(rows) * row_bytes_ < pieces.size() * least_piece_bytes)
    return copy_pieces(pieces, row_bytes_, scratch,
                       [&](std::int64_t, std::span<std::byte> all) { read(first, all); });
  ScatteredRead read(fd_, offset_of(first), source_);
  for (const auto& [count, to] : pieces) {
    const auto bytes = static_cast<std::size_t>(count) * row_bytes_;
    if (to != nullptr)
      read.add(to, bytes);
    else
      read.leave_out(bytes);
  }
  read.finish();
}

}  // namespace farandole
