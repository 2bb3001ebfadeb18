#include "farandole/launch/process/memory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// Reads a number from a file with lines "name number".
std::optional<std::int64_t> number_of(const fs::path& file, std::string_view name) {
  std::ifstream stream(file);
  std::string word;
  std::int64_t value = 0;
  while (stream >> word >> value)
    if (word == name) return value;
  return std::nullopt;
}

std::string in_mebibytes(std::int64_t bytes) {
  return fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

MemoryWatch::MemoryWatch() : MemoryWatch(Places()) {}

MemoryWatch::MemoryWatch(Places places)
    : places_(std::move(places)), group_before_(group_kills()), host_before_(host_kills()) {}

// Reads the nearest group that has a counter. In v2, the counter of a group includes the groups below it.
std::optional<std::int64_t> MemoryWatch::group_kills() const {
  for (const auto& folder : places_.groups)
    for (const char* file : {"memory.events", "memory.oom_control"})
      if (const auto kills = number_of(folder / file, "oom_kill")) return kills;
  return std::nullopt;
}

std::optional<std::int64_t> MemoryWatch::host_kills() const {
  return number_of(places_.vmstat, "oom_kill");
}

std::optional<std::int64_t> MemoryWatch::limit_bytes() const {
  std::optional<std::int64_t> least;
  for (const auto& folder : places_.groups) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      std::int64_t bytes = 0;
      constexpr std::int64_t unlimited = std::int64_t{1} << 60;  // v1 writes a number near 2^63 for no limit.
      if (std::ifstream(folder / file) >> bytes && bytes < unlimited)
        least = std::min(least.value_or(bytes), bytes);
    }
  }
  return least;
}

// Each read() of the log returns one record: "priority,number,µs,flags;text\n".
std::string MemoryWatch::kernel_line(pid_t pid) const {
  const OwnedDescriptor log(::open(places_.kernel_log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (log.get() < 0) return "";
  const auto killed = fmt::format("Killed process {} ", pid);
  constexpr std::int64_t slack_us = 60'000'000;  // The log's clock drifts from this process' clock.
  std::array<char, 8192> buffer;
  std::string found;
  for (;;) {
    const auto got = ::read(log.get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EPIPE)) continue;  // EPIPE: records were overwritten.
    if (got <= 0) return found;
    const std::string_view record(buffer.data(), static_cast<std::size_t>(got));
    const auto text = record.substr(std::min(record.find(';') + 1, record.size()));
    int priority = 0;
    std::int64_t number = 0, time_us = 0;
    char comma = 0;
    std::istringstream(std::string(record)) >> priority >> comma >> number >> comma >> time_us;
    // This record belongs to an earlier process with the same id.
    if (time_us < start_us_ - slack_us) continue;
    if (text.find(killed) != std::string_view::npos) found = text.substr(0, text.find('\n'));
  }
}

// The counter of a control group counts each of its processes that is killed, also those killed for lack of
// memory on the whole host. The host's counter also counts processes of other jobs, so it is evidence only
// without the other one.
std::string MemoryWatch::evidence(pid_t pid) const {
  if (const auto line = kernel_line(pid); !line.empty()) return fmt::format("the kernel's log: {}", line);
  if (const auto now = group_kills(); now && group_before_) {
    if (*now <= *group_before_) return "";
    const auto limit = limit_bytes();
    return fmt::format("its control group counts {} more out-of-memory kill{}{}", *now - *group_before_,
                       *now - *group_before_ == 1 ? "" : "s",
                       limit ? ", its limit is " + in_mebibytes(*limit) : "");
  }
  if (const auto now = host_kills(); now && host_before_ && *now > *host_before_)
    return fmt::format("its host counts {} more out-of-memory kill{}", *now - *host_before_,
                       *now - *host_before_ == 1 ? "" : "s");
  return "";
}

namespace {

std::int64_t positive_number(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  return text == nullptr ? 0 : std::max<std::int64_t>(parse_number<std::int64_t>(text).value_or(0), 0);
}

}  // namespace

// sbatch(1), output environment variables. Slurm's numbers are MiB.
std::optional<std::int64_t> slurm_memory_bytes(const Environment& environment) {
  if (!in_slurm_job(environment)) return std::nullopt;
  auto mib = positive_number(environment, "SLURM_MEM_PER_NODE");
  if (mib == 0)
    mib = positive_number(environment, "SLURM_MEM_PER_CPU") *
          positive_number(environment, "SLURM_CPUS_ON_NODE");
  if (mib == 0) return std::nullopt;
  return mib << 20;
}

std::optional<std::int64_t> job_memory_bytes() {
  std::optional<std::int64_t> least;
  if (const auto pages = ::sysconf(_SC_PHYS_PAGES); pages > 0)
    least = std::int64_t{pages} * ::sysconf(_SC_PAGESIZE);
  for (const auto limit : {MemoryWatch().limit_bytes(), slurm_memory_bytes(&std::getenv)})
    if (limit) least = std::min(least.value_or(*limit), *limit);
  return least;
}

std::optional<std::int64_t> available_memory_bytes() {
  std::ifstream stream("/proc/meminfo");
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  return std::nullopt;
}

}  // namespace farandole
