#include "farandole/doctor/installation.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <netdb.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/base/clock.h"
#include "farandole/base/host.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/base/process/program.h"
#include "farandole/base/process/shared_library.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/process/memory.h"

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

// Returns the first word of `text` that looks like a version, such as "4.1.4"; nullopt if there is none.
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

std::string first_line(const char* file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::string describe_limit(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}
rlim_t soft_limit(int resource) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit.rlim_cur;
}

std::int64_t free_on(const char* folder) {
  struct statvfs status {};
  if (::statvfs(folder, &status) != 0) return -1;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

// Tests what the ranks of a node do: a sibling process opens a memfd of another process through /proc.
// Returns "" if this works.
std::string trouble_with_memfd() {
  const OwnedDescriptor memory(
      static_cast<int>(::syscall(SYS_memfd_create, "farandole-doctor", MFD_CLOEXEC)));
  if (memory.get() < 0) return fmt::format("memfd_create: {}", std::strerror(errno));
  if (::ftruncate(memory.get(), 4096) != 0) return fmt::format("ftruncate: {}", std::strerror(errno));
  // Two children are used, because a parent may be allowed to access its child where siblings are not.
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::pause();
    ::_exit(0);
  }
  const pid_t sibling = owner < 0 ? -1 : ::fork();
  if (sibling == 0) {
    const auto path = fmt::format("/proc/{}/fd/{}", owner, memory.get());
    const int opened = ::open(path.c_str(), O_RDWR);
    ::_exit(opened >= 0 ? 0 : errno);
  }
  int status = 0;
  if (sibling > 0) ::waitpid(sibling, &status, 0);
  if (owner > 0) {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
  }
  if (sibling < 0) return "fork failed";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0
             ? ""
             : fmt::format("open /proc/PID/fd of another rank: {}", std::strerror(WEXITSTATUS(status)));
}

Check check_shared_memory() {
  const auto trouble = trouble_with_memfd();
  const auto scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!trouble.empty())
    return {
        "shared memory", Health::warn,
        fmt::format("ranks of this machine cannot share memory ({}); MPI is used instead, which is slower",
                    trouble),
        scope == "2" || scope == "3"
            ? fmt::format(
                  "yama/ptrace_scope is {}; set it to 1 or 0 so that ranks of one user can share memory",
                  scope)
            : "start all ranks of a node in one container, with one user and one /proc"};
  const auto there = free_on("/dev/shm");
  constexpr std::int64_t little = 64 << 20;
  if (there >= 0 && there < little)
    return {"shared memory", Health::warn,
            fmt::format("ranks share memory, but /dev/shm, which Open MPI uses, has only {} free",
                        describe_bytes(there)),
            "in a container, use --shm-size=1g or --ipc=host; otherwise remove files from /dev/shm"};
  return {"shared memory", Health::ok,
          fmt::format("ranks of this machine share memory; /dev/shm has {} free",
                      there < 0 ? "?" : describe_bytes(there)),
          ""};
}

Check check_limits() {
  const auto files = soft_limit(RLIMIT_NOFILE), locked = soft_limit(RLIMIT_MEMLOCK),
             space = soft_limit(RLIMIT_AS), stack = soft_limit(RLIMIT_STACK), core = soft_limit(RLIMIT_CORE);
  const auto in_kib = [](rlim_t bytes) {
    return bytes == RLIM_INFINITY ? describe_limit(bytes) : fmt::format("{} KiB", bytes / 1024);
  };
  const auto text =
      fmt::format("open files {}, locked memory {}, address space {}, stack {}, core {}",
                  describe_limit(files), in_kib(locked), in_kib(space), in_kib(stack), in_kib(core));
  if (files < 1024)
    return {"limits", Health::warn, text, "ulimit -n 4096, because each peer on a node needs descriptors"};
  if (space != RLIM_INFINITY)
    return {"limits", Health::warn, text,
            "ulimit -v unlimited, because CUDA and large maps reserve more address space than they use"};
  if (stack != RLIM_INFINITY && stack < (1u << 20)) return {"limits", Health::warn, text, "ulimit -s 8192"};
  if (locked != RLIM_INFINITY && locked < (64u << 10) && std::ifstream("/sys/class/infiniband"))
    return {"limits", Health::warn, text,
            "ulimit -l unlimited (LimitMEMLOCK of slurmd), because InfiniBand registers memory"};
  return {"limits", Health::ok, text, ""};
}

Check check_cores() {
  const auto online = static_cast<int>(std::thread::hardware_concurrency());
  const int usable = usable_cores();
  const auto quota = cgroup_cores();
  const auto text =
      fmt::format("{} of {} usable{}", usable, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                  quota ? fmt::format(", the control group's quota is {}", *quota) : "");
  if (quota && *quota < online)
    return {"cores", Health::warn, text,
            "a quota below the number of cores makes ranks wait for each other; request whole cores "
            "(--cpus-per-task, "
            "--cpuset-cpus)"};
  return {"cores", Health::ok, text, ""};
}

Check check_memory() {
  const auto available = available_memory_bytes().value_or(0);
  auto text = describe_bytes(available) + " available";
  constexpr std::int64_t little = std::int64_t{1} << 30;
  bool short_of = available < little;
  const auto limited = [&](const char* what, std::optional<std::int64_t> limit) {
    if (!limit) return;
    text += fmt::format(", {} {}", what, describe_bytes(*limit));
    short_of |= *limit < little;
  };
  limited("the control group's limit is", MemoryWatch().limit_bytes());
  limited("Slurm grants", slurm_memory_bytes(&std::getenv));
  if (short_of)
    return {"memory", Health::warn, text,
            "LibTorch needs about 200 MiB per rank; end other programs, or request more memory (--mem)"};
  return {"memory", Health::ok, text, ""};
}

Check check_space() {
  const auto here = free_on(".");
  if (here < 0)
    return {"disk", Health::warn,
            fmt::format("the space of this folder is unknown: {}", std::strerror(errno)),
            "run farandole doctor in another folder"};
  const auto text = fmt::format("{} free in this folder", describe_bytes(here));
  if (here < (64 << 20))
    return {"disk", Health::fail, text,
            "free some space, or choose a --run-dir elsewhere; a recorder alone needs 64 MiB per rank"};
  if (here < (std::int64_t{2} << 30))
    return {"disk", Health::warn, text,
            "free some space, or choose a --run-dir elsewhere, because checkpoints need space"};
  if (::access(".", W_OK) != 0)
    return {"disk", Health::warn, text + ", but it is not writable", "choose a --run-dir that is writable"};
  return {"disk", Health::ok, text, ""};
}

Check check_host_name() {
  const auto name = host_name();
  addrinfo* found = nullptr;
  const auto begin = now_ns();
  const int error = ::getaddrinfo(name.c_str(), nullptr, nullptr, &found);
  const auto took = now_ns() - begin;
  if (error != 0)
    return {"host name", Health::warn, fmt::format("{} has no address: {}", name, ::gai_strerror(error)),
            fmt::format("add it to /etc/hosts: 127.0.1.1 {}", name)};
  ::freeaddrinfo(found);
  if (took > 1'000'000'000)
    return {"host name", Health::warn, fmt::format("looking up {} takes {}", name, describe_seconds(took)),
            fmt::format("add it to /etc/hosts: 127.0.1.1 {}", name)};
  return {"host name", Health::ok, name, ""};
}

Check check_clock() {
  const auto source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  constexpr int readings = 1000;
  const auto begin = now_ns();
  std::int64_t last = begin;
  for (int i = 0; i < readings; ++i) last = now_ns();
  const auto each = static_cast<double>(last - begin) / readings;
  const auto text =
      fmt::format("{}, a reading takes {:.0f} ns", source.empty() ? "source unknown" : source, each);
  if (each > 200)
    return {"clock", Health::warn, text,
            "a clock that needs a system call makes recording slow; use the clock source tsc or kvm-clock"};
  return {"clock", Health::ok, text, ""};
}

}  // namespace

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
