// Checks an installation and its machine. Starts programs and processes.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
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

// Each check has one subject. Checks of programs and their libraries:
Check check_mpi();       // mpirun exists and starts two ranks.
Check check_libtorch();  // farandole-train starts.
Check check_hdf5();      // farandole-checkpoint starts.
Check check_gpu();       // Driver and devices.
Check check_slurm();

// Checks of the machine:
Check check_shared_memory();  // Between processes of this machine.
Check check_limits();
Check check_cores();
Check check_memory();
Check check_space();
Check check_host_name();
Check check_clock();

// Returns the first word of `text` that looks like a version, such as "4.1.4"; nullopt if there is none.
std::optional<std::string> version_in(const std::string& text);

}  // namespace farandole
