// The environment variables that a supervisor sets for its rank: those from which programs of PyTorch learn
// their ranks, as torchrun sets them, those that let Python find our modules, and those that preload the
// library of pmpi/ for `farandole run --trace-mpi`.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

// Returns RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and, unless it is set, MASTER_ADDR: the host of rank
// 0. Programs take LOCAL_RANK as the number of their GPU. If Slurm lets each task see only one GPU,
// LOCAL_RANK is 0 and LOCAL_WORLD_SIZE 1, as if torchrun had been started once for each GPU.
EnvironmentChanges torch_environment(int rank, int world_size, const Environment& environment);

// The first host of Slurm's notation: "gpu[08-10,12],login" is gpu08.
std::string first_host(std::string_view hosts);

// Returns the path of the library: the folder of the programs, both in the build and after an installation.
std::filesystem::path mpi_trace_library();

// Throws: UserError if the library does not exist or cannot be preloaded into `program` (a file).
void require_mpi_trace(const std::filesystem::path& program);

// Returns the changes to the program's environment. Libraries that `environment` already preloads stay.
EnvironmentChanges mpi_trace_environment(const Environment& environment);

// Returns the folder of our Python modules: below the folder of the libraries, both in the build and
// after an installation.
std::filesystem::path python_folder();

// Throws: UserError if the modules or the library that they load do not exist.
void require_python(const std::string& option);

// As in LaunchRequest.
struct PythonOptions {
  bool trace = false, backend = false, horovod = false;
  bool guest = false;  // As `trace`, for a program that something else starts.
};
// Python finds our modules if they exist. With an option, it also runs the sitecustomize that records what
// the program does with torch, makes our collectives those of torch.distributed, or makes our modules those
// that scripts of Horovod import.
EnvironmentChanges python_environment(const PythonOptions& options, const Environment& environment);

// Returns whether `program` is an ELF file without a dynamic linker; false for scripts and other files.
bool is_statically_linked(const std::filesystem::path& program);

}  // namespace farandole
