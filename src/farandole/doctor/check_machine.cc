#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/host.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/installation.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/process/memory.h"

namespace farandole {
namespace {

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

}  // namespace

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
  std::int64_t available = 0;
  std::ifstream stream("/proc/meminfo");
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("MemAvailable:")) available = std::stoll(line.substr(13)) * 1024;
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

}  // namespace farandole
