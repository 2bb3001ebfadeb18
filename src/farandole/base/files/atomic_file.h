// Publishes a file atomically: readers see the old file or the complete new file, also after a crash.
// Thread safety: any thread may call this at any time. Only one thread at a time may use an AtomicFile.
#pragma once

#include <filesystem>
#include <string_view>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

// Syncs `temporary`, renames it to `path` and syncs the folder.
// Throws: Error if one of these fails. `path` is then unchanged.
void publish_file(const std::filesystem::path& temporary, const std::filesystem::path& path);

// A file that appears under its path when it is complete. Until then it is a hidden file in the same folder,
// named after this host and process.
class AtomicFile {
 public:
  // Creates the file to write to. What has its name, also a link, is removed first.
  // Throws: Error if the file cannot be created, or if it is a pipe that nobody reads.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // removes the file if it was not published
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The file to write to. If the path is a device or a pipe, it is the path itself.
  const std::filesystem::path& temporary() const { return temporary_; }
  void publish();  // throws as publish_file()

 private:
  const std::filesystem::path path_;
  OwnedDescriptor pipe_;  // While it is open, others can open the pipe without waiting for a reader.
  const std::filesystem::path temporary_;
  bool published_ = false;
};

// Does this for small contents.
// Throws: Error if writing fails. `path` is then unchanged and no temporary file is left.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The same without fsync, for small files that need not survive a power failure. Returns false if this fails.
bool replace_file(const std::filesystem::path& path, std::string_view contents) noexcept;

}  // namespace farandole
