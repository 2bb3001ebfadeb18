#include "farandole/launch/run_files.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

namespace farandole {

namespace fs = std::filesystem;

std::vector<nlohmann::json> last_metrics(const fs::path& run) {
  constexpr std::streamoff most = 16 << 10;
  std::vector<nlohmann::json> lines;
  const auto file = run / "metrics.jsonl";
  std::error_code absent;
  if (!fs::is_regular_file(file, absent)) return lines;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return lines;
  stream.seekg(std::max<std::streamoff>(0, stream.tellg() - most));
  for (std::string line; std::getline(stream, line);) {
    auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (object.is_object() && !stream.eof()) lines.push_back(std::move(object));
  }
  return lines;
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
