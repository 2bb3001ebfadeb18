// Reads a file's bytes and uncompresses gzip, which is detected automatically.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace farandole {

class InflatedFile {
 public:
  // Returns nullptr if the file cannot be opened.
  // Throws: CorruptInput if it is not a regular file, for example a FIFO, which would block the caller.
  static std::unique_ptr<InflatedFile> open(const std::filesystem::path& path);
  ~InflatedFile();
  InflatedFile(const InflatedFile&) = delete;
  InflatedFile& operator=(const InflatedFile&) = delete;

  // Reads the next bytes. Returns less than `room` only at the end or before damage.
  std::size_t read(char* into, std::size_t room);
  // Why the bytes ended early, for example "the gzip data is truncated"; "" if they did not.
  const std::string& damage() const;

 private:
  struct State;
  explicit InflatedFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farandole
