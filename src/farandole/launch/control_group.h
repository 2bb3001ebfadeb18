// The control groups that this process is in, as folders. Usable from any thread.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace farandole {

// The folders of this process' group for `controller` ("cpu", "memory"), v1 and v2, each followed by its
// parents up to the mount: a parent's limit holds for its children. They need not exist. `root` is where
// cgroup file systems are mounted and `self` lists this process' groups (tests give their own).
std::vector<std::filesystem::path> control_group_folders(
    std::string_view controller, const std::filesystem::path& root = "/sys/fs/cgroup",
    const std::filesystem::path& self = "/proc/self/cgroup");

}  // namespace farandole
