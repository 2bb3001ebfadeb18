// The bytes of a text: one file, or all files of a folder joined.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace farandole {

struct Text {
  std::vector<std::uint8_t> bytes;
  int files = 0;
};

// Reads the regular files of a folder, sorted by name, without subfolders and dot files. A file with several
// names (links) is read once.
// Throws: UserError if no file can be read.
Text read_text(const std::filesystem::path& path);

}  // namespace farandole
