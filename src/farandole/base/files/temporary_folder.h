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

// Removes `folder` with all that it contains, without reporting errors. The folder is renamed first.
// Therefore a process that still creates files by the old path cannot keep the folder from being removed.
void discard_folder(const std::filesystem::path& folder) noexcept;

// Says whether discard_folder() has renamed `folder` and was killed before it had removed all of it.
bool is_discarded(const std::filesystem::path& folder);

}  // namespace farandole
