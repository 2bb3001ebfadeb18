// The checks of an installation, each of one subject. They start programs and processes; one thread.
#pragma once

#include <optional>
#include <string>

#include "farandole/doctor/installation.h"

namespace farandole {

// Programs and their libraries.
Check check_mpi();       // mpirun is there and starts two ranks
Check check_libtorch();  // farandole-train starts
Check check_hdf5();      // farandole-checkpoint starts
Check check_gpu();       // driver and devices
Check check_slurm();

// The machine.
Check check_shared_memory();  // between processes of this machine
Check check_limits();
Check check_cores();
Check check_memory();
Check check_space();
Check check_host_name();
Check check_clock();

// The first word of `text` that looks like a version, "4.1.4"; nothing where none does.
std::optional<std::string> version_in(const std::string& text);

}  // namespace farandole
