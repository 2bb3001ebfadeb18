// Writes a gzip file, compressing pieces on several threads as pigz does. Used by one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

// One gzip member (RFC 1952): the pieces are deflate blocks that end on byte boundaries, so every reader
// takes it.
class GzipWriter {
 public:
  // Throws Error where the file cannot be created. threads = 0: as many as the machine has, at most 8.
  explicit GzipWriter(const std::filesystem::path& path, unsigned threads = 0);
  ~GzipWriter();  // what was not finished is no whole file
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // Takes a piece's contents, best of about piece_bytes, and leaves it empty, with the room of an earlier
  // one; waits while enough pieces are under way. Throws Error (disk full).
  void write(fmt::memory_buffer& piece);
  void write(std::string_view piece);
  void finish();

  // Small enough for a core's cache, in which it is written, compressed and summed.
  static constexpr std::size_t piece_bytes = std::size_t{256} << 10;

 private:
  struct Piece {
    fmt::memory_buffer raw;
    std::string deflated;
    std::uint32_t crc = 0;
    bool done = false;
    std::exception_ptr failure;
  };
  void work();
  void write_oldest();

  const std::string path_;
  const OwnedDescriptor fd_;
  std::deque<std::unique_ptr<Piece>> under_way_;  // in the file's order
  std::unique_ptr<Piece> idle_;                   // its buffers are used again
  std::uint32_t crc_ = 0;
  std::uint64_t raw_bytes_ = 0;

  std::mutex mutex_;  // of what follows, and of Piece::done
  std::condition_variable to_do_given_, piece_done_;
  std::deque<Piece*> to_do_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace farandole
