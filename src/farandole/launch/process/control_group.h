// The control groups of this process, as folders.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace farandole {

// Returns the folders of this process' group for `controller` ("cpu", "memory") in v1 and v2. Each folder is
// followed by its parents up to the mount, because a parent's limit also applies to its children. The folders
// may not exist. `root` is the mount point of the cgroup file systems, and `self` lists the groups of this
// process; tests pass their own.
std::vector<std::filesystem::path> control_group_folders(
    std::string_view controller, const std::filesystem::path& root = "/sys/fs/cgroup",
    const std::filesystem::path& self = "/proc/self/cgroup");

}  // namespace farandole
