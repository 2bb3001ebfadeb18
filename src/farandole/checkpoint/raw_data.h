// Bytes of files, past HDF5. Usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace farandole {

// A descriptor for reading and writing at offsets, whose failures come with errno's reason.
class RawData {
 public:
  RawData(const std::string& path, int flags);  // as for open(2); throws Error
  // A file that is nowhere but in memory; holes take none.
  static RawData in_memory(const std::string& name_for_messages);
  ~RawData();
  RawData(RawData&& other) noexcept;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;  // throws Error
  // false: the file ends before. Throws Error where the read fails.
  bool read(std::uint64_t offset, std::span<std::byte> bytes) const;
  std::uint64_t file_bytes() const;
  void resize(std::uint64_t bytes) const;  // throws Error
  void put_behind(int descriptor) const;   // which then is one more of this file; throws Error

 private:
  RawData(int fd, std::string path) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace farandole
