// A file that lies on a node's own disk while it is written, and comes to its home, on a file system that all
// nodes share, behind that: beside the home lies a link to it, HOME with the extension .node, which leads
// somewhere on that node alone. Who brings it home need not be who wrote it, which may have been killed.
// Usable from any thread and any process of the node: each waits for the other's copy (flock on the file).
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace farandole {

std::filesystem::path node_link(const std::filesystem::path& home);

// Makes the link, and returns where in `node_folder` to create the file. What an earlier one has left, at
// home or here, is removed. Throws Error.
std::filesystem::path leave_home(const std::filesystem::path& home, const std::filesystem::path& node_folder);
// Removes the same for who stays at home.
void forget_home(const std::filesystem::path& home);

// A copy of the file as it is now is at home from then on; its empty blocks take no room there. False where
// no link leads to a file here. Throws Error; what was at home is then still there.
bool copy_home(const std::filesystem::path& home);
// The same, and nothing is left here: neither file nor link. What a process that was killed at it has left is
// for the next to remove.
bool bring_home(const std::filesystem::path& home);

// Where to read: the file on this node, else the one at home.
std::filesystem::path readable_at(const std::filesystem::path& home);
// The homes in `folder` of files that end in `extension`, by name, also of those that a link alone speaks of.
// `failure`: why there may be more, for the folder could not be read, or not to its end.
std::vector<std::filesystem::path> homes_in(const std::filesystem::path& folder, const std::string& extension,
                                            std::error_code& failure);

}  // namespace farandole
