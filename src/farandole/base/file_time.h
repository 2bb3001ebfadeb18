// When a file was changed. Usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>

namespace farandole {

// By the clock of its file system, in ns after 1970; -1: it is not there.
std::int64_t changed_ns(const std::filesystem::path& path);

}  // namespace farandole
