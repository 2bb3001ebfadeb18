// Properties of this machine for the launcher: cores, terminal, programs, control groups.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/cores.h"

namespace farandole {

// Returns the number of cores that this process may use: its CPU affinity, limited by the CPU quota of its
// control group, and at least 1.
int usable_cores();

// Returns the CPU quota of the control group in cores, rounded up; nullopt without a limit. `root` is the
// mount point of the cgroup file systems, and `self` lists the groups of this process; tests pass their own.
std::optional<int> cgroup_cores(const std::filesystem::path& root = "/sys/fs/cgroup",
                                const std::filesystem::path& self = "/proc/self/cgroup");

// Returns the columns of the terminal behind `descriptor`; nullopt if it is not a terminal.
std::optional<int> terminal_columns(int descriptor);

// A TCP port on which no process of this machine listens, below those that Linux gives to outgoing
// connections. While the object lives, a program that looks for a free port does not get it. A server gets it
// as usual, because servers allow others to have been there (SO_REUSEADDR).
struct HeldPort {
  OwnedDescriptor socket;
  int number = 0;  // 0: none was found.
};
HeldPort hold_tcp_port();

// Returns the program that execvp would start for `name` with the PATH `search_path`; nullopt
// if there is none.
std::optional<std::filesystem::path> find_program(const std::string& name, const std::string& search_path);

// Returns the folders of this process' group for `controller` ("cpu", "memory") in v1 and v2. Each folder is
// followed by its parents up to the mount, because a parent's limit also applies to its children. The folders
// may not exist. `root` is the mount point of the cgroup file systems, and `self` lists the groups of this
// process; tests pass their own.
std::vector<std::filesystem::path> control_group_folders(
    std::string_view controller, const std::filesystem::path& root = "/sys/fs/cgroup",
    const std::filesystem::path& self = "/proc/self/cgroup");

}  // namespace farandole
