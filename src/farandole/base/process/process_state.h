// Processes of this host, from /proc.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// The state of a process or thread.
struct ProcessState {
  // R running, S sleeping, D in the kernel, T stopped, t traced, Z ended but not waited for.
  char state = '?';
  std::int64_t parent = 0;         // process id
  std::int64_t started_ticks = 0;  // since the host has booted; a later process with the same id has another
  int wait_status = 0;             // for Z: the status that waitpid() would return
};

// std::nullopt if there is no such process or /proc hides it.
std::optional<ProcessState> read_process_state(std::int64_t pid);

// False if there is no such process.
bool ignores_signal(std::int64_t pid, int number);

// The children of a process. Those that a thread other than the first one has started are left out.
std::vector<std::int64_t> children_of(std::int64_t pid);
// These, their children, and so on.
std::vector<std::int64_t> descendants_of(std::int64_t pid);

// Process ids are comparable only within one of these; 0 if it is unknown.
std::uint64_t own_pid_namespace();

// Another one after each start of this host; empty if it is unknown.
std::string boot_id();

}  // namespace farandole
