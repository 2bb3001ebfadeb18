#include "farandole/base/run/run_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <system_error>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::vector<Json> objects_in_last(std::uint64_t bytes, const fs::path& file) {
  std::vector<Json> objects;
  read_lines(file, bytes, [&](std::string_view line) {
    auto object = try_parse_json(line);
    if (object.is_object()) objects.push_back(std::move(object));
  });
  return objects;
}

}  // namespace

std::vector<Json> last_metrics(const fs::path& file) try {
  constexpr std::uint64_t usual = 16 << 10, longest_line = 1 << 20;
  auto objects = objects_in_last(usual, file);
  return objects.empty() ? objects_in_last(longest_line, file) : objects;
} catch (const Error&) {
  return {};
}

std::optional<std::int64_t> last_logged_step(const fs::path& file) {
  std::optional<std::int64_t> last;
  for (const auto& line : last_metrics(file))
    if (const auto step = line.find("step"); step != line.end() && step->is_number_integer())
      last = step->get<std::int64_t>();
  return last;
}

fs::path run_json_of(const fs::path& run) {
  return run / "run.json";
}

std::optional<std::int64_t> step_of_checkpoint(const fs::path& file) {
  const auto name = file.filename().string();
  constexpr std::string_view before = "step-", after = ".h5";
  if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
  const auto digits =
      std::string_view(name).substr(before.size(), name.size() - before.size() - after.size());
  const auto step = parse_number<std::int64_t>(digits);
  return step && *step >= 0 ? step : std::nullopt;
}

// By the number, because from step 100,000,000 on names have more digits.
std::vector<fs::path> checkpoint_files(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (const auto step = step_of_checkpoint(entry->path())) found.emplace_back(*step, entry->path());
  // Any other failure says nothing about the checkpoints. Without them, a run would start anew.
  if (failure && !is_absent(failure))
    throw Error("list the checkpoints in " + folder.string() + ": " + failure.message());
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> files;
  for (auto& [step, file] : found) files.push_back(std::move(file));
  return files;
}

fs::path newest_checkpoint(const fs::path& run) try {
  const auto files = checkpoint_files(run / "checkpoints");
  return files.empty() ? fs::path() : files.front();
} catch (const Error&) {
  return {};
}

fs::path newest_checkpoint_of_program(const fs::path& run) {
  constexpr std::array<std::string_view, 6> endings = {".pt",          ".pth", ".ckpt",
                                                       ".safetensors", ".h5",  ".hdf5"};
  constexpr std::array<std::string_view, 5> own = {"recorder", "logs", "launch", "starts", "data"};
  constexpr int most_entries = 10'000, deepest = 2;
  fs::path newest;
  std::int64_t newest_ns = -1;
  std::error_code failure;
  int entries = 0;
  for (fs::recursive_directory_iterator entry(run, fs::directory_options::skip_permission_denied, failure),
       end;
       !failure && entry != end && ++entries < most_entries; entry.increment(failure)) {
    const auto& path = entry->path();
    const auto name = path.filename().string();
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (entry.depth() >= deepest || std::find(own.begin(), own.end(), name) != own.end())
        entry.disable_recursion_pending();
    } else if (name[0] != '.' && !step_of_checkpoint(path) && entry->is_regular_file(ignored) &&
               std::find(endings.begin(), endings.end(), path.extension().string()) != endings.end()) {
      if (const auto ns = changed_ns(path); ns > newest_ns) {
        newest = path;
        newest_ns = ns;
      }
    }
  }
  return newest;
}

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
