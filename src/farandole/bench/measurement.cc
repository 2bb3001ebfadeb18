#include "farandole/bench/measurement.h"

#include <fmt/format.h>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

namespace farandole {

std::string milliseconds_with_spread(const Sample& sample) {
  return fmt::format("{:.2f} ({:.2f}–{:.2f})", sample.median() * 1e-3, sample.quantile(0.25) * 1e-3,
                     sample.quantile(0.75) * 1e-3);
}

Json machine_facts() {
  Json facts = {{"cores", std::thread::hardware_concurrency()}};
  if (utsname name{}; ::uname(&name) == 0) {
    facts["host"] = name.nodename;
    facts["kernel"] = std::string(name.sysname) + " " + name.release;
    facts["architecture"] = name.machine;
  }
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  if (pages > 0) facts["memory_gib"] = pages * ::sysconf(_SC_PAGESIZE) >> 30;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    facts["cpu"] = line.substr(line.find(": ") + 2);
    break;
  }
  return facts;
}

}  // namespace farandole
