#include "farandole/base/run_folder.h"

#include <cstdlib>
#include <fmt/format.h>

namespace farandole {

std::filesystem::path run_dir_of_environment() {
  const char* const folder = std::getenv("FARANDOLE_RUN_DIR");
  if (folder == nullptr || *folder == '\0') return {};
  return std::filesystem::absolute(folder);
}

std::filesystem::path recorder_file(const std::filesystem::path& run_dir, int rank) {
  return run_dir / "recorder" / fmt::format("rank-{:04}.ftl", rank);
}

}  // namespace farandole
