#include "farandole/base/files/temporary_folder.h"

#include <cstdlib>
#include <new>
#include <string>
#include <system_error>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr const char* discarded_suffix = ".discarded";

}  // namespace

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent) {
  std::string name = parent / "farandole-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw system_error("make a temporary folder", name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  discard_folder(path_);
}

void discard_folder(const std::filesystem::path& folder) noexcept {
  try {
    std::error_code ignored;
    auto discarded = folder;
    if (!is_discarded(folder)) {
      discarded += discarded_suffix;
      std::filesystem::rename(folder, discarded, ignored);
    }
    std::filesystem::remove_all(discarded, ignored);
  } catch (const std::bad_alloc&) {  // The folder stays.
  }
}

bool is_discarded(const std::filesystem::path& folder) {
  return folder.extension() == discarded_suffix;
}

}  // namespace farandole
