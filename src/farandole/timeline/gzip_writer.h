// Writes a gzip file, compressing pieces on several threads as pigz does. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <string>

namespace farandole {

// One gzip member (RFC 1952): the pieces are deflate blocks that end on byte boundaries, so every reader
// takes it.
class GzipWriter {
 public:
  // Throws Error where the file cannot be created. threads = 0: as many as the machine has, at most 8.
  explicit GzipWriter(const std::filesystem::path& path, unsigned threads = 0, int level = 1);
  ~GzipWriter();  // what was not finished is no whole file
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // Takes a piece, best of about piece_bytes; waits when all threads are busy. Throws Error (disk full).
  void write(std::string piece);
  void finish();

  static constexpr std::size_t piece_bytes = std::size_t{1} << 20;

 private:
  struct Deflated {
    std::string bytes;
    std::uint32_t crc = 0;
    std::size_t raw_bytes = 0;
  };
  static Deflated deflate(const std::string& piece, int level);
  void write_oldest();
  void write_bytes(const std::string& bytes);

  const std::string path_;
  const int fd_;
  const unsigned threads_;
  const int level_;
  std::deque<std::future<Deflated>> under_way_;
  std::uint32_t crc_ = 0;
  std::uint64_t raw_bytes_ = 0;
};

}  // namespace farandole
