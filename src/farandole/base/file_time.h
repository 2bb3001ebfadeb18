// When a file was last modified.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>

namespace farandole {

// The modification time by the clock of the file system, or -1 if the file does not exist.
// Units: nanoseconds since 1970.
std::int64_t changed_ns(const std::filesystem::path& path);

}  // namespace farandole
