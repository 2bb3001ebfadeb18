#include "farandole/base/run/run_files.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::vector<nlohmann::json> objects_in_last(std::uint64_t bytes, const fs::path& file) {
  std::vector<nlohmann::json> objects;
  read_lines(file, bytes, [&](std::string_view line) {
    auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) objects.push_back(std::move(object));
  });
  return objects;
}

}  // namespace

std::vector<nlohmann::json> last_metrics(const fs::path& file) try {
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

fs::path newest_checkpoint(const fs::path& run) {
  fs::path newest;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", absent))
    if (const auto name = entry.path().filename().string();
        name.starts_with("step-") && name.ends_with(".h5"))
      newest = std::max(newest, entry.path());
  return newest;
}

}  // namespace farandole
