// Writes a gzip file and compresses its pieces on several threads, as pigz does.
// Thread safety: none; use from one thread at a time.
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

#include "farandole/base/files/file_bytes.h"

namespace farandole {

// The file is one gzip member (RFC 1952), so every reader accepts it. The pieces are deflate blocks that
// end on byte boundaries.
class GzipWriter {
 public:
  // threads = 0 means one thread per processor of the machine, up to 8.
  // Throws: Error if the file cannot be created.
  explicit GzipWriter(const std::filesystem::path& path, unsigned threads = 0);
  ~GzipWriter();  // without finish() the file is incomplete
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // Takes the contents of a piece, ideally about piece_bytes. `piece` is then empty and has the capacity of
  // an earlier piece. Waits while enough pieces are being compressed.
  // Throws: Error if writing fails, for example because the disk is full.
  void write(fmt::memory_buffer& piece);
  void write(std::string_view piece);
  void finish();

  // Small enough for the cache of a core, in which a piece is written, compressed and checksummed.
  static constexpr std::size_t piece_bytes = std::size_t{256} << 10;

 private:
  struct Piece {
    fmt::memory_buffer raw;
    std::string deflated;
    std::uint32_t crc = 0;
    bool done = false;
    std::exception_ptr failure;
  };
  class Deflater;  // Compresses one piece at a time.
  static void compress(Piece& piece, Deflater& deflater);
  void work();
  void write_oldest();

  const std::string path_;
  const OwnedDescriptor fd_;
  std::deque<std::unique_ptr<Piece>> under_way_;  // in the order of the file
  std::unique_ptr<Piece> idle_;                   // its buffers are reused
  std::unique_ptr<Deflater> own_deflater_;        // used if no thread could be started
  std::uint32_t crc_ = 0;
  std::uint64_t raw_bytes_ = 0;

  std::mutex mutex_;  // protects the members below and Piece::done
  std::condition_variable to_do_given_, piece_done_;
  std::deque<Piece*> to_do_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace farandole
