// What the launcher asks this machine: cores, host name, terminal. Usable from any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace farandole {

// Cores that this process may use: its CPU affinity, lowered to the CPU quota of its control group; at
// least 1.
int usable_cores();

// The part of usable_cores() that a control group limits, rounded up; nothing where there is no limit.
// `root` is where cgroup file systems are mounted and `self` lists this process' groups (tests give their
// own).
std::optional<int> cgroup_cores(const std::filesystem::path& root = "/sys/fs/cgroup",
                                const std::filesystem::path& self = "/proc/self/cgroup");

std::string host_name();

// Columns of the terminal behind `descriptor`; nothing where it is none.
std::optional<int> terminal_columns(int descriptor);

// The program that execvp would start for `name`, found through `search_path` (a PATH); nothing where there
// is none.
std::optional<std::filesystem::path> find_program(const std::string& name, const std::string& search_path);

}  // namespace farandole
