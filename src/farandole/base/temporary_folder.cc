#include "farandole/base/temporary_folder.h"

#include <cstdlib>
#include <string>
#include <system_error>

#include "farandole/base/error.h"

namespace farandole {

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent) {
  std::string name = parent / "farandole-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw system_error("make a temporary folder", name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace farandole
