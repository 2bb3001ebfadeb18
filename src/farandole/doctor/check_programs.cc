#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "farandole/base/process/launch_environment.h"
#include "farandole/base/process/program.h"
#include "farandole/base/process/shared_library.h"
#include "farandole/doctor/installation.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/process/machine.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

std::optional<fs::path> in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  return find_program(program, path == nullptr ? "" : path);
}

// The file that the dynamic linker finds for each library of a program, as ldd prints
// it: "libmpi.so.40 => /usr/lib/…".
struct Libraries {
  std::string missing;  // First library that is not found.
  std::string text;

  std::string path_of(std::string_view name) const {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string library, arrow, path;
      if (words >> library >> arrow >> path && library.starts_with(name) && path.starts_with('/'))
        return path;
    }
    return "";
  }
};

// "srun 22.05.8", or "srun" if the version is unknown: without Slurm's configuration, srun --version fails.
std::string named(const std::string& program, const std::optional<std::string>& version) {
  return version ? program + " " + *version : program;
}

Libraries libraries_of(const fs::path& program) {
  Libraries libraries;
  libraries.text =
      output_of({"/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", program}, seconds(20)).value_or("");
  std::istringstream lines(libraries.text);
  for (std::string line, name; std::getline(lines, line) && libraries.missing.empty();)
    if (line.find("not found") != std::string::npos && std::istringstream(line) >> name)
      libraries.missing = name;
  return libraries;
}

// Returns a library's function that reports the library's version; nullptr if there is none.
template <class Function>
Function* function_of(const std::string& library, const char* name) {
  Function* function = nullptr;
  if (!library.empty()) SharedLibrary(nullptr, library).find(function, name);
  return function;
}

// Returns why one of our programs does not start with --help; nothing if it starts, which means that
// it finds its libraries.
std::optional<Check> find_trouble(const char* subject, const fs::path& program, const std::string& remedy) {
  if (::access(program.c_str(), X_OK) != 0)
    return Check{subject, Health::warn, fmt::format("{} does not exist", program.string()), remedy};
  const auto missing = libraries_of(program).missing;
  if (!missing.empty())
    return Check{
        subject, Health::fail, fmt::format("{} cannot find {}", program.string(), missing),
        "add its folder to LD_LIBRARY_PATH, load its module, or build again with this site's library"};
  if (!output_of({program, "--help"}, seconds(60)))
    return Check{
        subject, Health::fail, fmt::format("{} --help fails", program.string()),
        "run it to see the error; if this processor is older than that of the build machine, build here"};
  return std::nullopt;
}

std::string torch_version(const std::string& library) {
  const auto torch = fs::path(library).parent_path().parent_path();
  std::ifstream stream(torch / "version.py");
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("__version__"))
      if (const auto version = version_in(line)) return *version;
  return "";
}

std::string mpi_of_program(const fs::path& program) {
  const auto version =
      function_of<int(char*, int*)>(libraries_of(program).path_of("libmpi.so"), "MPI_Get_library_version");
  if (version == nullptr) return "";
  std::string text(8192, '\0');
  int length = 0;
  version(text.data(), &length);
  return version_in(text).value_or("");
}

}  // namespace

std::optional<std::string> version_in(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins = std::isdigit(static_cast<unsigned char>(text[at])) != 0 &&
                        (at == 0 || std::isdigit(static_cast<unsigned char>(text[at - 1])) == 0);
    if (!begins) continue;
    auto end = at;
    while (end < text.size() &&
           (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
      ++end;
    auto version = text.substr(at, end - at);
    while (version.ends_with('.')) version.pop_back();
    if (version.find('.') != std::string::npos) return version;
    at = end;
  }
  return std::nullopt;
}

Check check_mpi() {
  const auto mpirun = in_path("mpirun");
  if (!mpirun)
    return {
        "MPI", in_path("srun") ? Health::warn : Health::fail, "mpirun is not in PATH",
        "install Open MPI 4.1 or later, or load its module; inside Slurm, srun --mpi=pmix is used instead"};
  const auto version = version_in(output_of({*mpirun, "--version"}, seconds(20)).value_or(""));
  const auto name = named(mpirun->string(), version);
  const auto built_with = mpi_of_program(program_folder() / "farandole-train");
  if (!built_with.empty() && version && built_with != *version)
    return {"MPI", Health::warn,
            fmt::format("{} is version {}, farandole-train has {}", mpirun->string(), *version, built_with),
            "put the mpirun of the MPI with which Farandole was built first in PATH"};
  const auto ranks = output_of(
      {program_folder() / "farandole", "run", "-n", "2", "--oversubscribe", "--", "sh", "-c", "echo rank"},
      seconds(60));
  if (!ranks)
    return {"MPI", Health::fail, name + " cannot start two ranks",
            "to see the error, run: farandole run -n 2 --oversubscribe -- true"};
  return {"MPI", Health::ok, name + " starts two ranks", ""};
}

Check check_libtorch() {
  const auto program = program_folder() / "farandole-train";
  if (auto trouble = find_trouble("LibTorch", program,
                                  "build with LibTorch: tools/setup, or CMAKE_PREFIX_PATH=/path/to/libtorch"))
    return *trouble;
  const auto library = libraries_of(program).path_of("libtorch_cpu.so");
  const auto version = torch_version(library);
  return {"LibTorch", Health::ok,
          fmt::format(
              "farandole-train starts{}",
              library.empty() ? "" : fmt::format(", with LibTorch {}", version.empty() ? library : version)),
          ""};
}

Check check_hdf5() {
  const auto program = program_folder() / "farandole-checkpoint";
  if (auto trouble =
          find_trouble("HDF5", program, "build it: cmake --build build --target farandole-checkpoint"))
    return *trouble;
  const auto library = libraries_of(program).path_of("libhdf5");
  const auto version = function_of<int(unsigned*, unsigned*, unsigned*)>(library, "H5get_libversion");
  unsigned major = 0, minor = 0, release = 0;
  if (version == nullptr || version(&major, &minor, &release) < 0)
    return {"HDF5", Health::ok, "farandole-checkpoint starts", ""};
  return {"HDF5", Health::ok, fmt::format("version {}.{}.{}", major, minor, release), ""};
}

Check check_gpu() {
  const bool device = ::access("/dev/nvidiactl", F_OK) == 0;
  const auto version = function_of<int(int*)>("libcuda.so.1", "cuDriverGetVersion");
  const auto begin = function_of<int()>("libnvidia-ml.so.1", "nvmlInit_v2");
  const auto count = function_of<int(unsigned*)>("libnvidia-ml.so.1", "nvmlDeviceGetCount_v2");
  if (!device && version == nullptr)
    return {"GPU", Health::ok, "there is no NVIDIA driver; runs use the CPU", ""};
  unsigned devices = 0;
  if (begin == nullptr || count == nullptr || begin() != 0 || count(&devices) != 0)
    return {"GPU", Health::warn, "there is a device, but NVML (libnvidia-ml.so.1) does not answer",
            "start a container with the NVIDIA runtime (--gpus all, --nv); otherwise compare driver and "
            "library with nvidia-smi"};
  int cuda = 0;
  if (version != nullptr) version(&cuda);
  return {"GPU", Health::ok,
          fmt::format("{} device{}, the driver supports CUDA {}.{}", devices, devices == 1 ? "" : "s",
                      cuda / 1000, cuda % 1000 / 10),
          ""};
}

Check check_slurm() {
  const auto srun = in_path("srun");
  const auto environment = [](const char* name) { return std::getenv(name); };
  if (!srun) {
    if (in_slurm_job(environment))
      return {"Slurm", Health::fail, "this is a Slurm job, but srun is not in PATH",
              "load Slurm's module, or correct PATH"};
    return {"Slurm", Health::ok, "srun is not in PATH; farandole run uses mpirun", ""};
  }
  const auto name = named("srun", version_in(output_of({*srun, "--version"}, seconds(20)).value_or("")));
  const auto kinds = output_of({*srun, "--mpi=list"}, seconds(20)).value_or("");
  const bool answers = output_of({"sinfo", "-h"}, seconds(20)).has_value();
  if (!answers)
    return {"Slurm", in_slurm_job(environment) ? Health::fail : Health::warn,
            name + " exists, but no controller answers sinfo",
            "on a cluster, ask its administrators; elsewhere farandole run uses mpirun"};
  if (kinds.find("pmix") == std::string::npos) {
    const bool other = in_path("mpirun") || environment("SLURM_MPI_TYPE") != nullptr;
    return {
        "Slurm", other ? Health::warn : Health::fail, name + " does not support PMIx (see srun --mpi=list)",
        "farandole run starts ranks with mpirun instead. If there is none, set SLURM_MPI_TYPE to a type that this "
        "site's Open MPI supports, or build Slurm with PMIx"};
  }
  return {"Slurm", Health::ok,
          fmt::format("{} with PMIx{}", name,
                      in_slurm_job(environment) ? fmt::format(", in job {}", std::getenv("SLURM_JOB_ID"))
                                                : ", outside of a job"),
          ""};
}

}  // namespace farandole
