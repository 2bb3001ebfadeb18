// Preloads the library of pmpi/ into the ranks for `farandole run --trace-mpi`.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

// Returns the path of the library: the folder of the programs, both in the build and after an installation.
std::filesystem::path mpi_trace_library();

// Throws: UserError if the library does not exist or cannot be preloaded into `program` (a file).
void require_mpi_trace(const std::filesystem::path& program);

// Returns the changes to the program's environment. Libraries that `environment` already preloads stay.
EnvironmentChanges mpi_trace_environment(const Environment& environment);

// Returns whether `program` is an ELF file without a dynamic linker; false for scripts and other files.
bool is_statically_linked(const std::filesystem::path& program);

}  // namespace farandole
