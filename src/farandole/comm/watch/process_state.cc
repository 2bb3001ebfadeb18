#include "farandole/comm/watch/process_state.h"

#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <sys/wait.h>

namespace farandole {

std::optional<ProcessState> read_process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;  // read at once: it is empty if the process ends now
  std::getline(file, text, '\0');
  const auto name_end = text.rfind(')');  // the program's name may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  constexpr int state_field = 3, exit_code_field = 52;  // field numbers of proc(5)
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  std::string skipped;
  for (int field = state_field + 1; field < exit_code_field; ++field) fields >> skipped;
  fields >> found.wait_status;
  return found;
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("ended with exit code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("killed by SIG{}", name) : fmt::format("killed by signal {}", number);
}

}  // namespace farandole
