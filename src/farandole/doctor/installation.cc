#include "farandole/doctor/installation.h"

#include <algorithm>
#include <fmt/format.h>

#include "farandole/analyzer/report/text_table.h"
#include "farandole/base/text/json.h"

namespace farandole {

std::string_view name_of(Health health) {
  return health == Health::ok ? "ok" : health == Health::warn ? "warn" : "fail";
}

std::vector<Check> check_installation() {
  return {check_mpi(),    check_libtorch(),      check_hdf5(),      check_gpu(),
          check_slurm(),  check_shared_memory(), check_limits(),    check_cores(),
          check_memory(), check_space(),         check_host_name(), check_clock()};
}

bool has_failure(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const auto& check) { return check.health == Health::fail; });
}

std::string checks_text(const std::vector<Check>& checks) {
  std::string text;
  for (const auto& check : checks) {
    constexpr std::size_t indent = 22;
    text += fmt::format("{:<4}  {:<14}  {}\n", name_of(check.health), check.subject,
                        wrapped(check.finding, indent));
    if (!check.remedy.empty())
      text += fmt::format("{:{}}→ {}\n", "", indent, wrapped(check.remedy, indent + 2));
  }
  const auto count = [&](Health health) {
    return std::count_if(checks.begin(), checks.end(), [&](const auto& one) { return one.health == health; });
  };
  const auto failing = count(Health::fail), warnings = count(Health::warn);
  if (failing > 0)
    return text + fmt::format("\n{} of {} checks fail. Runs will not work until these problems are fixed.\n",
                              failing, checks.size());
  if (warnings > 0)
    return text + fmt::format("\nRuns work on this machine; {} of {} checks give a warning.\n", warnings,
                              checks.size());
  return text + fmt::format("\nAll {} checks passed.\n", checks.size());
}

std::string checks_json(const std::vector<Check>& checks) {
  Json json = {{"farandole_doctor", 1}, {"checks", Json::array()}};
  for (const auto& check : checks)
    json["checks"].push_back({{"subject", check.subject},
                              {"health", name_of(check.health)},
                              {"finding", check.finding},
                              {"remedy", check.remedy.empty() ? Json() : Json(check.remedy)}});
  return json_text(json, 2) + "\n";
}

}  // namespace farandole
