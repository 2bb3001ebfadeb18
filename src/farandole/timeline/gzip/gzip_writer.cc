#include "farandole/timeline/gzip/gzip_writer.h"

#include <algorithm>
#include <fcntl.h>
#include <system_error>
#include <utility>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

constexpr std::string_view gzip_header("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10);
constexpr std::string_view empty_last_block("\x03\0", 2);

void append_little_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace

class GzipWriter::Deflater {
 public:
  Deflater() {
    if (::deflateInit2(&stream_, 1, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error("zlib cannot start to compress: out of memory");
  }
  ~Deflater() { ::deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // `into` receives deflate blocks (RFC 1951). None of them is marked as the last one, they end on a byte
  // boundary, and they do not refer to other pieces. So pieces may follow each other in any order.
  void compress(std::string_view piece, std::string& into) {
    ::deflateReset(&stream_);
    into.resize(::deflateBound(&stream_, piece.size()) + 16);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(piece.size());
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(into.size());
    const int code = ::deflate(&stream_, Z_SYNC_FLUSH);
    if (code != Z_OK || stream_.avail_in != 0 || stream_.avail_out == 0)
      throw Error("zlib could not compress a piece (code " + std::to_string(code) + ")");
    into.erase(into.size() - stream_.avail_out);
  }

 private:
  z_stream stream_{};
};

GzipWriter::GzipWriter(const std::filesystem::path& path, unsigned threads)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_.get() < 0) throw system_error("create", path_);
  write_bytes(fd_.get(), gzip_header, path_);
  if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  // If the limit of processes is reached, fewer threads compress, or this one does.
  try {
    while (threads_.size() < threads) threads_.push_back(start_quiet_thread([this] { work(); }));
  } catch (const std::system_error&) {
  }
}

GzipWriter::~GzipWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  to_do_given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void GzipWriter::compress(Piece& piece, Deflater& deflater) {
  try {
    const std::string_view raw(piece.raw.data(), piece.raw.size());
    deflater.compress(raw, piece.deflated);
    piece.crc =
        static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(raw.data()), raw.size()));
  } catch (...) {
    piece.failure = std::current_exception();
  }
}

void GzipWriter::work() {
  Deflater deflater;
  std::unique_lock lock(mutex_);
  while (true) {
    to_do_given_.wait(lock, [this] { return stop_ || !to_do_.empty(); });
    if (stop_) return;
    Piece& piece = *to_do_.front();
    to_do_.pop_front();
    lock.unlock();
    compress(piece, deflater);
    lock.lock();
    piece.done = true;
    piece_done_.notify_one();
  }
}

void GzipWriter::write(fmt::memory_buffer& piece) {
  if (piece.size() == 0) return;
  while (under_way_.size() > threads_.size()) write_oldest();
  auto next = idle_ != nullptr ? std::exchange(idle_, nullptr) : std::make_unique<Piece>();
  std::swap(next->raw, piece);
  piece.clear();
  next->done = false;
  if (threads_.empty()) {
    if (own_deflater_ == nullptr) own_deflater_ = std::make_unique<Deflater>();
    compress(*next, *own_deflater_);
    next->done = true;
  } else {
    const std::lock_guard lock(mutex_);
    to_do_.push_back(next.get());
    to_do_given_.notify_one();
  }
  under_way_.push_back(std::move(next));
}

void GzipWriter::write(std::string_view piece) {
  fmt::memory_buffer copy;
  copy.append(piece.data(), piece.data() + piece.size());
  write(copy);
}

void GzipWriter::write_oldest() {
  {
    std::unique_lock lock(mutex_);
    piece_done_.wait(lock, [this] { return under_way_.front()->done; });
  }
  idle_ = std::move(under_way_.front());
  under_way_.pop_front();
  if (idle_->failure) std::rethrow_exception(idle_->failure);
  const auto bytes = idle_->raw.size();
  crc_ = static_cast<std::uint32_t>(::crc32_combine(crc_, idle_->crc, static_cast<z_off_t>(bytes)));
  raw_bytes_ += bytes;
  write_bytes(fd_.get(), idle_->deflated, path_);
}

void GzipWriter::finish() {
  while (!under_way_.empty()) write_oldest();
  std::string end(empty_last_block);
  append_little_endian(end, crc_);
  append_little_endian(end, static_cast<std::uint32_t>(raw_bytes_));
  write_bytes(fd_.get(), end, path_);
}

}  // namespace farandole
