#include "farandole/base/run/run_folder.h"

#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <system_error>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/owned_descriptor.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {

std::filesystem::path run_dir_of_environment() {
  const char* const folder = std::getenv("FARANDOLE_RUN_DIR");
  if (folder == nullptr || *folder == '\0') return {};
  return std::filesystem::absolute(folder);
}

std::filesystem::path recorder_file(const std::filesystem::path& run_dir, int rank) {
  return run_dir / "recorder" / fmt::format("rank-{:04}.ftl", rank);
}

std::optional<int> rank_of_recorder(const std::filesystem::path& file) {
  constexpr std::string_view before = "rank-", after = ".ftl";
  const std::string name = file.filename().string();
  if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  const auto digits =
      std::string_view(name).substr(before.size(), name.size() - before.size() - after.size());
  return digits.size() < 4 ? std::nullopt : parse_number<int>(digits);
}

void tell_run_dir(const std::filesystem::path& run_dir) noexcept {
  const char* const wanted = std::getenv(run_dir_wanted);
  if (wanted == nullptr) return;
  try {
    // If the supervisor has ended, another process may have its number.
    std::error_code gone;
    if (!std::filesystem::read_symlink(wanted, gone)
             .string()
             .starts_with(fmt::format("/memfd:{}", run_dir_memory)))
      return;
    const OwnedDescriptor file(::open(wanted, O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (!run_dir.empty()) write_bytes(file.get(), std::filesystem::absolute(run_dir).string(), wanted);
  } catch (const std::exception&) {  // the run goes on if the launcher does not know the run directory
  }
}

}  // namespace farandole
