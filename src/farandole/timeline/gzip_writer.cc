#include "farandole/timeline/gzip_writer.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <zlib.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::string_view gzip_header("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10);
constexpr std::string_view empty_last_block("\x03\0", 2);

void append_little_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace

GzipWriter::GzipWriter(const std::filesystem::path& path, unsigned threads, int level)
    : path_(path),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      threads_(threads > 0 ? threads : std::clamp(std::thread::hardware_concurrency(), 1u, 8u)),
      level_(level) {
  if (fd_ < 0) throw system_error("create", path_);
  try {
    write_bytes(std::string(gzip_header));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

GzipWriter::~GzipWriter() {
  under_way_.clear();
  ::close(fd_);
}

GzipWriter::Deflated GzipWriter::deflate(const std::string& piece, int level) {
  z_stream stream{};
  if (::deflateInit2(&stream, level, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error("zlib cannot start to compress: out of memory");
  Deflated result;
  result.bytes.resize(::deflateBound(&stream, piece.size()) + 16);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
  stream.avail_in = static_cast<uInt>(piece.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.bytes.data());
  stream.avail_out = static_cast<uInt>(result.bytes.size());
  const int code = ::deflate(&stream, Z_SYNC_FLUSH);
  const bool whole = code == Z_OK && stream.avail_in == 0 && stream.avail_out > 0;
  result.bytes.resize(result.bytes.size() - stream.avail_out);
  ::deflateEnd(&stream);
  if (!whole) throw Error("zlib could not compress a piece (code " + std::to_string(code) + ")");
  result.crc = static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size())));
  result.raw_bytes = piece.size();
  return result;
}

void GzipWriter::write(std::string piece) {
  if (piece.empty()) return;
  while (under_way_.size() >= threads_) write_oldest();
  under_way_.push_back(std::async(
      std::launch::async, [piece = std::move(piece), level = level_] { return deflate(piece, level); }));
}

void GzipWriter::write_oldest() {
  std::future<Deflated> oldest = std::move(under_way_.front());
  under_way_.pop_front();
  const Deflated piece = oldest.get();
  crc_ = static_cast<std::uint32_t>(::crc32_combine(crc_, piece.crc, static_cast<z_off_t>(piece.raw_bytes)));
  raw_bytes_ += piece.raw_bytes;
  write_bytes(piece.bytes);
}

void GzipWriter::finish() {
  while (!under_way_.empty()) write_oldest();
  std::string end(empty_last_block);
  append_little_endian(end, crc_);
  append_little_endian(end, static_cast<std::uint32_t>(raw_bytes_));
  write_bytes(end);
}

void GzipWriter::write_bytes(const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("write", path_);
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace farandole
