// What a machine offers to runs: checks of an installation. Starts programs and processes; one thread.
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
  std::string finding;  // a line
  std::string remedy;   // a line; "" where all is well
};

// Of this machine, in the order in which people need them. Takes seconds: it starts two ranks.
std::vector<Check> check_installation();

bool has_failure(const std::vector<Check>& checks);

std::string checks_text(const std::vector<Check>& checks);
// {"farandole_doctor": 1, "checks": [{"subject", "health", "finding", "remedy"}]}
std::string checks_json(const std::vector<Check>& checks);

}  // namespace farandole
