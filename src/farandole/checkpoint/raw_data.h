// Reads and writes the bytes of files without HDF5.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace farandole {

// A descriptor for reading and writing at offsets. Its errors contain errno's text.
class RawData {
 public:
  RawData(const std::string& path, int flags);  // flags as for open(2); throws Error
  ~RawData();
  RawData(RawData&& other) noexcept;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;  // throws Error
  // Returns false if the file ends before.
  // Throws: Error if the read fails.
  bool read(std::uint64_t offset, std::span<std::byte> bytes) const;
  std::uint64_t file_bytes() const;
  void resize(std::uint64_t bytes) const;  // throws Error
  // Lets the disk begin to write these bytes, and does not wait for it. Without this call it is
  // idle until sync().
  void start_writeback(std::uint64_t offset, std::uint64_t bytes) const;
  void sync() const;  // throws Error

 private:
  std::string path_;
  int fd_;
};

}  // namespace farandole
