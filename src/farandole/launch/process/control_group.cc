#include "farandole/launch/process/control_group.h"

#include <fstream>
#include <string>

namespace farandole {

namespace fs = std::filesystem;

// The lines of `self` look like "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
std::vector<fs::path> control_group_folders(std::string_view controller, const fs::path& root,
                                            const fs::path& self) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& mount, const fs::path& group) {
    for (fs::path folder = group;; folder = folder.parent_path()) {
      folders.push_back(mount / folder);
      if (folder.empty()) break;
    }
  };
  std::ifstream stream(self);
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto group = fs::path(line.substr(second + 1)).relative_path();
    if (controllers == ",,") add(root, group);
    if (controllers.find("," + std::string(controller) + ",") != std::string::npos)
      add(root / controller, group);
  }
  return folders;
}

}  // namespace farandole
