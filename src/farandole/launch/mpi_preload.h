// How `farandole run --trace-mpi` gets pmpi/'s library into the ranks. Usable from any thread.
#pragma once

#include <filesystem>

#include "farandole/base/launch_environment.h"
#include "farandole/launch/child_process.h"

namespace farandole {

// Beside the programs, in the build as after an installation.
std::filesystem::path mpi_trace_library();

// Throws UserError where the library is not there, or cannot get into `program` (a file).
void require_mpi_trace(const std::filesystem::path& program);

// What to change for the program; what `environment` preloads already stays.
EnvironmentChanges mpi_trace_environment(const Environment& environment);

// Whether `program` is an ELF file that no dynamic linker starts; false for scripts and whatever else.
bool is_statically_linked(const std::filesystem::path& program);

}  // namespace farandole
