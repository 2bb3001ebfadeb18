// Publishes a file atomically: readers see the old file or the complete new file, also after a crash.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string_view>

namespace farandole {

// Creates the file to write to before publish_file(path) and returns its path: a hidden file in the folder of
// `path`, named after this host and process. What has this name, also a link, is removed first. If `path` is
// a device or a pipe, returns `path` itself.
// Throws: Error if the file cannot be created.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

// Syncs `temporary`, renames it to `path` and syncs the folder.
// Throws: Error if one of these fails. `path` is then unchanged.
void publish_file(const std::filesystem::path& temporary, const std::filesystem::path& path);

// Removes the temporary file. Call this instead of publish_file() after writing has failed.
void discard_file(const std::filesystem::path& temporary, const std::filesystem::path& path);

// Does the three steps for small contents.
// Throws: Error if writing fails. `path` is then unchanged and no temporary file is left.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The same without fsync, for small files that need not survive a power failure. Returns false if this fails.
bool replace_file(const std::filesystem::path& path, std::string_view contents) noexcept;

}  // namespace farandole
