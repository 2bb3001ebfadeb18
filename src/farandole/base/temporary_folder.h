// A private folder that goes with its scope. Belongs to one thread.
#pragma once

#include <filesystem>

namespace farandole {

class TemporaryFolder {
 public:
  // PARENT/farandole-XXXXXX, for this user only. Throws Error.
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace farandole
