#include "farandole/base/process/process_state.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <sys/stat.h>

namespace farandole {

std::optional<ProcessState> read_process_state(std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;  // read at once: it is empty if the process ends now
  std::getline(file, text, '\0');
  const auto name_end = text.rfind(')');  // the program's name may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  constexpr int parent_field = 4, start_field = 22, exit_code_field = 52;  // field numbers of proc(5)
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState found;
  fields >> found.state >> found.parent;
  std::string skipped;
  for (int field = parent_field + 1; field < start_field; ++field) fields >> skipped;
  fields >> found.started_ticks;
  for (int field = start_field + 1; field < exit_code_field; ++field) fields >> skipped;
  fields >> found.wait_status;
  return found;
}

bool ignores_signal(std::int64_t pid, int number) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  constexpr std::string_view key = "SigIgn:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key))
      return (std::strtoull(line.c_str() + key.size(), nullptr, 16) >> (number - 1) & 1) != 0;
  return false;
}

std::vector<std::int64_t> children_of(std::int64_t pid) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", pid));
  return {std::istream_iterator<std::int64_t>(list), {}};
}

std::vector<std::int64_t> descendants_of(std::int64_t pid) {
  auto found = children_of(pid);
  for (std::size_t looked = 0; looked < found.size(); ++looked)
    for (const auto child : children_of(found[looked])) found.push_back(child);
  return found;
}

std::uint64_t own_pid_namespace() {
  struct stat status;
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::string boot_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

}  // namespace farandole
