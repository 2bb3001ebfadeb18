// Reads a file's bytes, uncompressed where it is gzip, which its content tells; with ISA-L where the build
// has it (inflated_file_isal.cc), else with zlib. An object is used by one thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace farandole {

class InflatedFile {
 public:
  // nullptr where the file cannot be opened.
  static std::unique_ptr<InflatedFile> open(const std::filesystem::path& path);
  ~InflatedFile();
  InflatedFile(const InflatedFile&) = delete;
  InflatedFile& operator=(const InflatedFile&) = delete;

  // The next bytes; fewer than `room` at the end, and before damage.
  std::size_t read(char* into, std::size_t room);
  // Why the bytes ended early: "the gzip data is truncated"; "" where they did not.
  const std::string& damage() const;

 private:
  struct State;
  explicit InflatedFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farandole
