// Checks an installation and its machine. Starts programs and processes.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farandole {

enum class Health { ok, warn, fail };
std::string_view name_of(Health health);

struct Check {
  std::string subject;  // "MPI"
  Health health = Health::ok;
  std::string finding;  // One line.
  std::string remedy;   // One line; "" if there is no problem.
};

// Checks this machine; the most important checks come first. This takes seconds, because it starts two ranks.
std::vector<Check> check_installation();

bool has_failure(const std::vector<Check>& checks);

std::string checks_text(const std::vector<Check>& checks);
// {"farandole_doctor": 1, "checks": [{"subject", "health", "finding", "remedy"}]}
std::string checks_json(const std::vector<Check>& checks);

}  // namespace farandole
