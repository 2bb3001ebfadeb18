// The bytes of a text: one file, or all files of a folder joined. Usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace farandole {

struct Text {
  std::vector<std::uint8_t> bytes;
  int files = 0;
};

// A folder's regular files (not its subfolders', no dot files), sorted by name; of several names for one
// file, which links make, one is taken. Throws UserError where nothing can be read.
Text read_text(const std::filesystem::path& path);

}  // namespace farandole
