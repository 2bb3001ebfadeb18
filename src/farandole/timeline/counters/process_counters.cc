#include "farandole/timeline/counters/process_counters.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace farandole {
namespace {

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

void add(std::optional<std::int64_t>& sum, std::int64_t value) {
  sum = sum.value_or(0) + value;
}

// proc(5), /proc/pid/io.
void read_files(ProcessCounters& counters) {
  std::ifstream file("/proc/self/io");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == "read_bytes:") counters.file_read_bytes = value;
    if (key == "write_bytes:") counters.file_written_bytes = value;
  }
}

// proc(5), /proc/pid/net/dev: two lines of headings, then "eth0: BYTES PACKETS ERRS DROP FIFO FRAME
// COMPRESSED MULTICAST BYTES …".
void read_interfaces(ProcessCounters& counters) {
  std::ifstream file("/proc/self/net/dev");
  constexpr auto line_end = std::numeric_limits<std::streamsize>::max();
  file.ignore(line_end, '\n').ignore(line_end, '\n');
  for (std::string name; std::getline(file >> std::ws, name, ':'); file.ignore(line_end, '\n')) {
    std::int64_t received = 0, sent = 0, skipped = 0;
    file >> received;
    for (int i = 0; i < 7; ++i) file >> skipped;
    if (!(file >> sent)) return;
    if (name == "lo") continue;
    add(counters.network_received_bytes, received);
    add(counters.network_sent_bytes, sent);
  }
}

// See the kernel's sysfs-class-infiniband. The counters count words of 4 bytes.
void read_infiniband(ProcessCounters& counters) {
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none)) {
      if (const auto words = number_in(port.path() / "counters/port_rcv_data"))
        add(counters.network_received_bytes, 4 * *words);
      if (const auto words = number_in(port.path() / "counters/port_xmit_data"))
        add(counters.network_sent_bytes, 4 * *words);
    }
  }
}

}  // namespace

ProcessCounters ProcessCounters::read() {
  ProcessCounters counters;
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  counters.cpu_ns = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  counters.page_faults = usage.ru_minflt + usage.ru_majflt;
  counters.major_page_faults = usage.ru_majflt;
  counters.context_switches = usage.ru_nvcsw;
  counters.preemptions = usage.ru_nivcsw;
  read_files(counters);
  read_interfaces(counters);
  read_infiniband(counters);
  return counters;
}

std::optional<double> resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace farandole
