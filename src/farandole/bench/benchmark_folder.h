// Where a benchmark's files lie while it runs. Used by one thread.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "farandole/base/error.h"

namespace farandole {

// A folder of our own in `parent`, removed with what is in it.
class BenchmarkFolder {
 public:
  explicit BenchmarkFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "farandole-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw system_error("create a folder in", parent);
    path_ = name;
  }
  ~BenchmarkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  BenchmarkFolder(const BenchmarkFolder&) = delete;
  BenchmarkFolder& operator=(const BenchmarkFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace farandole
