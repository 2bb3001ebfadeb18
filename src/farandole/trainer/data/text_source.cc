#include "farandole/trainer/data/text_source.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// Files come before links to them, so that each file is listed under its own name.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files, links;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code dangling;
    if (entry.path().filename().string().front() == '.' || !entry.is_regular_file(dangling)) continue;
    (entry.is_symlink() ? links : files).push_back(entry.path());
  }
  std::sort(links.begin(), links.end());
  std::set<fs::path> taken;
  for (const auto& file : files) taken.insert(fs::canonical(file));
  for (const auto& link : links) {
    if (taken.insert(fs::canonical(link)).second) files.push_back(link);
  }
  std::sort(files.begin(), files.end());
  return files;
}

void append(std::vector<std::uint8_t>& bytes, const fs::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const auto size = stream.tellg();
  if (!stream || size < 0)
    throw UserError(fmt::format("cannot read {}: check its permissions", file.string()));
  const auto before = bytes.size();
  bytes.resize(before + static_cast<std::size_t>(size));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(bytes.data() + before), size);
  if (stream.gcount() != size) {
    throw Error(fmt::format("read {}: got {} of {} bytes; did the file change during the read?",
                            file.string(), stream.gcount(), static_cast<std::int64_t>(size)));
  }
}

}  // namespace

Text read_text(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) throw UserError(fmt::format("{}: no such file or folder", path.string()));
  if (!fs::is_directory(status) && !fs::is_regular_file(status)) {
    throw UserError(fmt::format("{}: neither a file nor a folder of files", path.string()));
  }
  const auto files = fs::is_directory(status) ? files_of(path) : std::vector{path};
  Text text;
  for (const auto& file : files) append(text.bytes, file);
  text.files = static_cast<int>(files.size());
  if (text.bytes.empty())
    throw UserError(
        fmt::format("{}: there is no text in it; name a file or a folder of files", path.string()));
  return text;
}

}  // namespace farandole
