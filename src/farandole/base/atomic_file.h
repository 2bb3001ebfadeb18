// Publishes a file so that readers see the old one or the whole new one, also after a crash. Usable from any
// thread.
#pragma once

#include <filesystem>
#include <string_view>

namespace farandole {

// Where to write before publish_file(path): beside `path`, in the same folder, named after this host and
// process; `path` itself where that is no file, but a device or a pipe.
std::filesystem::path temporary_beside(const std::filesystem::path& path);

// fsync of `temporary`, rename to `path`, fsync of the folder. Throws Error; then `path` is as it was.
void publish_file(const std::filesystem::path& temporary, const std::filesystem::path& path);

// Instead of publish_file(), where writing failed.
void discard_file(const std::filesystem::path& temporary, const std::filesystem::path& path);

// The three steps for small contents. Throws Error; then `path` is as it was and no temporary file is left.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

}  // namespace farandole
