#include "farandole/base/process/process_state.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

// Since Linux 6.15, a pidfd keeps the exit status of its process, also after another process has waited for
// it. This is the first version of the structure in linux/pidfd.h, which older headers lack.
struct PidfdInfo {
  std::uint64_t mask = 0;
  std::uint64_t cgroup = 0;
  std::uint32_t ids[11] = {};
  std::int32_t wait_status = 0;
};
constexpr std::uint64_t pidfd_info_exit = 1u << 3;

std::optional<int> remembered_end(int pidfd) {
  PidfdInfo info;
  info.mask = pidfd_info_exit;
  constexpr auto get_info = _IOWR(0xFF, 11, PidfdInfo);
  if (::ioctl(pidfd, get_info, &info) != 0 || (info.mask & pidfd_info_exit) == 0) return std::nullopt;
  return info.wait_status;
}

std::string cause_of_end(pid_t pid, int pidfd) {
  if (const auto zombie = read_process_state(pid); zombie && zombie->state == 'Z')
    return describe_end(zombie->wait_status);
  const auto remembered = remembered_end(pidfd);
  return remembered ? describe_end(*remembered) : "ended";
}

}  // namespace

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

char state_of_process(std::int64_t pid, std::int64_t known_ns) {
  const auto process = read_process_state(pid);
  timespec up{};
  if (!process || process->state == 'Z' || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return '\0';
  const std::int64_t since_boot = process->started_ticks * (ns_per_second / ::sysconf(_SC_CLK_TCK));
  const std::int64_t age = std::int64_t{up.tv_sec} * ns_per_second + up.tv_nsec - since_boot;
  return real_time_ns() - age < known_ns + 2 * ns_per_second ? process->state : '\0';
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

PeerWatch::PeerWatch(std::span<const Peer> peers) {
  const std::uint64_t here = own_pid_namespace();
  for (const Peer& peer : peers) {
    if (peer.pid_namespace != 0 && peer.pid_namespace != here) continue;
    OwnedDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (pidfd.get() >= 0) watched_.push_back({peer, std::move(pidfd)});
  }
  std::sort(watched_.begin(), watched_.end(),
            [](const Watched& a, const Watched& b) { return a.peer.rank < b.peer.rank; });
}

std::optional<LostPeer> PeerWatch::lost() const {
  auto all = all_lost();
  return all.empty() ? std::nullopt : std::optional(std::move(all.front()));
}

std::vector<LostPeer> PeerWatch::all_lost() const {
  std::vector<pollfd> polled;
  for (const Watched& one : watched_) polled.push_back({one.pidfd.get(), POLLIN, 0});
  std::vector<LostPeer> lost;
  if (::poll(polled.data(), polled.size(), 0) <= 0) return lost;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    const Peer& peer = watched_[i].peer;
    if (polled[i].revents != 0) lost.push_back({peer.rank, peer.pid, cause_of_end(peer.pid, polled[i].fd)});
  }
  // Other ranks may have ended only because a killed rank was missing, so killed ranks come first.
  std::stable_partition(lost.begin(), lost.end(),
                        [](const LostPeer& one) { return one.cause.starts_with("killed"); });
  return lost;
}

std::vector<int> PeerWatch::descriptors() const {
  std::vector<int> all;
  for (const Watched& one : watched_) all.push_back(one.pidfd.get());
  return all;
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("ended with exit code {}", WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("killed by SIG{}", name) : fmt::format("killed by signal {}", number);
}

}  // namespace farandole
