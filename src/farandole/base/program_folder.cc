#include "farandole/base/program_folder.h"

namespace farandole {

std::filesystem::path program_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path(".") : program.parent_path();
}

std::filesystem::path profiles_folder() {
  const auto prefix = program_folder().parent_path();
  const auto installed = prefix / "share" / "farandole" / "profiles";
  if (std::filesystem::is_directory(installed)) return installed;
  return prefix.parent_path() / "profiles";  // CHECKOUT/build/bin/farandole-train
}

}  // namespace farandole
