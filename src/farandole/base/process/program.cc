#include "farandole/base/process/program.h"

#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"

namespace farandole {

int run_main(std::string_view name, const std::function<int()>& body) {
  const auto fail = [&](const std::exception& error, ExitCode code) {
    fmt::print(stderr, "{}: {}\n", name, printable(error.what()));
    return static_cast<int>(code);
  };
  ::signal(SIGXFSZ, SIG_IGN);
  try {
    return body();
  } catch (const Error& error) {
    return fail(error, error.exit_code());
  } catch (const std::exception& error) {
    return fail(error, ExitCode::failure);
  }
}

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
