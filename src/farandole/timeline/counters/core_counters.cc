#include "farandole/timeline/counters/core_counters.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <limits>

#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// The cpuset of this process's control group, or of the closest one around it that tells; "" if none does.
// cpuset(7) and the kernel's cgroup-v2 describe the files.
std::string control_group_cores() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "cpuset") continue;
    const fs::path root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpuset";
    for (auto group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      std::string list;
      if (std::ifstream(root / group / (v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus")) >> list)
        return list;
      if (group.empty()) break;
    }
  }
  return "";
}

}  // namespace

std::vector<int> cores_in(std::string_view list) {
  std::vector<int> cores;
  constexpr int most = 1 << 16;
  for (const auto& part : split_at_commas(list)) {
    const auto dash = part.find('-');
    const auto first = parse_number<int>(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last > most) break;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

ThreadCore::ThreadCore(int tid) : folder_(fmt::format("/proc/self/task/{}/", tid)) {}

// proc(5): time on a core, time in the run queue, time slices.
std::optional<std::int64_t> ThreadCore::waited_ns() const {
  std::ifstream file(folder_ + "schedstat");
  std::int64_t ran = 0, waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return waited;
}

// proc(5): field 39. The name of the thread, which is field 2, may contain spaces and parentheses.
std::optional<int> ThreadCore::number() const {
  std::ifstream file(folder_ + "stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  auto at = line.rfind(')');
  for (int field = 2; field < 39 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  const auto rest = std::string_view(line).substr(at + 1);
  return parse_number<int>(rest.substr(0, rest.find(' ')));
}

AllocatedCores::AllocatedCores() : start_(read()) {
  if (const auto own = cores_in(control_group_cores()); !own.empty())
    std::erase_if(start_,
                  [&](const auto& core) { return !std::binary_search(own.begin(), own.end(), core.first); });
  // If Slurm does not confine the job to its cores, the others may belong to other jobs.
  const auto* const slurm = std::getenv("SLURM_CPUS_ON_NODE");
  const auto given = slurm == nullptr ? std::nullopt : parse_number<std::size_t>(slurm);
  if (given && start_.size() > *given) start_.clear();
}

// proc(5), /proc/stat: "cpu7 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …".
std::map<int, AllocatedCores::Use> AllocatedCores::read() {
  std::map<int, Use> cores;
  std::ifstream file("/proc/stat");
  for (std::string name; file >> name && name.starts_with("cpu");
       file.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    const auto number = parse_number<int>(std::string_view(name).substr(3));
    if (!number) continue;  // the sum of all
    Use use;
    for (int field = 0; field < 8; ++field) {
      std::int64_t ticks = 0;
      if (!(file >> ticks)) return {};
      use.all += ticks;
      if (field == 3 || field == 4) use.idle += ticks;
    }
    cores[*number] = use;
  }
  return cores;
}

std::vector<int> AllocatedCores::idle() const {
  std::vector<int> idle;
  for (const auto& [core, now] : read()) {
    const auto start = start_.find(core);
    if (start == start_.end()) continue;
    const auto all = now.all - start->second.all;
    if (all > 0 && 10 * (now.idle - start->second.idle) >= 9 * all) idle.push_back(core);
  }
  return idle;
}

}  // namespace farandole
