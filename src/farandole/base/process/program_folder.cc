#include "farandole/base/process/program_folder.h"

#include <fmt/format.h>
#include <fstream>

namespace farandole {

std::filesystem::path program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : program.parent_path();
}

std::filesystem::path profiles_folder() {
  return program_folder().parent_path() / "share" / "farandole" / "profiles";
}

std::string how_to_build(std::string_view target, bool needs_libtorch) {
  const auto build = program_folder().parent_path();
  std::ifstream cache(build / "CMakeCache.txt");
  if (!cache)
    return fmt::format("Build {} and install Farandole again{}", target,
                       needs_libtorch ? "; it needs LibTorch: configure with -D FARANDOLE_TORCH=ON" : "");
  bool with_libtorch = true;
  for (std::string line; std::getline(cache, line);)
    if (line.starts_with("FARANDOLE_TORCH:"))
      with_libtorch = line.ends_with("=ON") || line.ends_with("=1") || line.ends_with("=TRUE");
  std::string configure;
  if (needs_libtorch && !with_libtorch)
    configure = fmt::format("cmake -D FARANDOLE_TORCH=ON {} && ", build.string());
  return fmt::format("Build it with: {}cmake --build {} --target {}", configure, build.string(), target);
}

}  // namespace farandole
