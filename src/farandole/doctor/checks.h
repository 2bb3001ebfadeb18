// The checks of an installation; each check has one subject. They start programs and processes.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "farandole/doctor/installation.h"

namespace farandole {

// Checks of programs and their libraries.
Check check_mpi();       // mpirun exists and starts two ranks.
Check check_libtorch();  // farandole-train starts.
Check check_hdf5();      // farandole-checkpoint starts.
Check check_gpu();       // Driver and devices.
Check check_slurm();

// Checks of the machine.
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
