// A private temporary folder that is removed at the end of its scope.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>

namespace farandole {

class TemporaryFolder {
 public:
  // Creates PARENT/farandole-XXXXXX, which only this user may access.
  // Throws: Error if this fails.
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
