#include "farandole/launch/process/machine.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/process/cores.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// In cgroup v2, the file contains "max 100000" or "150000 100000". In v1, the two numbers are in separate
// files, and -1 means no limit.
std::optional<double> quota_of(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period && period > 0) return quota / period;
  if (std::ifstream(group / "cpu.cfs_quota_us") >> quota && quota > 0 &&
      std::ifstream(group / "cpu.cfs_period_us") >> period && period > 0)
    return quota / period;
  return std::nullopt;
}

}  // namespace

std::optional<int> cgroup_cores(const fs::path& root, const fs::path& self) {
  std::optional<double> least;
  for (const auto& folder : control_group_folders("cpu", root, self))
    if (const auto quota = quota_of(folder)) least = std::min(least.value_or(*quota), *quota);
  if (!least) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(*least)));
}

int usable_cores() {
  const int cores = allowed_cores();
  return std::max(1, std::min(cores, cgroup_cores().value_or(cores)));
}

std::optional<int> terminal_columns(int descriptor) {
  winsize size{};
  if (::isatty(descriptor) == 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

HeldPort hold_tcp_port() {
  constexpr int first = 20'000, count = 10'000, attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const int port = first + (::getpid() * 37 + attempt * 101) % count;
    OwnedDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      const int on = 1;
      for (const int option : {SO_REUSEADDR, SO_REUSEPORT})
        ::setsockopt(socket.get(), SOL_SOCKET, option, &on, sizeof on);
      return {std::move(socket), port};
    }
    if (errno != EADDRINUSE) break;
  }
  return {OwnedDescriptor(), 0};
}

std::optional<fs::path> find_program(const std::string& name, const std::string& search_path) {
  std::error_code ignored;
  const auto runs = [&](const fs::path& path) {
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? std::optional<fs::path>(name) : std::nullopt;
  std::istringstream folders(search_path);
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');) {
    const auto path = fs::path(folder.empty() ? "." : folder) / name;
    if (runs(path)) return path;
  }
  return std::nullopt;
}

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
