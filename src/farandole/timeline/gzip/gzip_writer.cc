#include "farandole/timeline/gzip/gzip_writer.h"

#include <algorithm>
#include <fcntl.h>
#include <system_error>
#include <utility>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/timeline/gzip/deflater.h"

namespace farandole {
namespace {

constexpr std::string_view gzip_header("\x1f\x8b\x08\0\0\0\0\0\x04\xff", 10);
constexpr std::string_view empty_last_block("\x03\0", 2);

void append_little_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

}  // namespace

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
    piece.crc = Deflater::crc32(raw);
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
