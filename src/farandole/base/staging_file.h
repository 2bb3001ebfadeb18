// A file that lies on a node's own disk while it is written, and comes to its destination, on a file system that all
// nodes share, behind that: beside the destination lies a link to it, DESTINATION with the extension .node, which leads
// somewhere on that node alone. Who brings it to the destination need not be who wrote it, which may have been killed.
// Usable from any thread and any process of the node: each waits for the other's copy (flock on the file).
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace farandole {

std::filesystem::path node_link(const std::filesystem::path& destination);

// Makes the link, and returns where in `node_folder` to create the file. What an earlier one has left, at
// the destination or here, is removed. Throws Error.
std::filesystem::path stage_in(const std::filesystem::path& destination,
                               const std::filesystem::path& node_folder);
// Removes the same for who stays at the destination.
void forget_staged(const std::filesystem::path& destination);

// A copy of the file as it is now is at the destination from then on; its empty blocks take no room there. False where
// no link leads to a file here. Throws Error; what was at the destination is then still there.
bool copy_out(const std::filesystem::path& destination);
// The same, and nothing is left here: neither file nor link. What a process that was killed at it has left is
// for the next to remove.
bool stage_out(const std::filesystem::path& destination);

// Where to read: the file on this node, else the one at the destination.
std::filesystem::path readable_at(const std::filesystem::path& destination);
// The destinations in `folder` of files that end in `extension`, by name, also of those that a link alone speaks of.
// `failure`: why there may be more, for the folder could not be read, or not to its end.
std::vector<std::filesystem::path> staged_files_in(const std::filesystem::path& folder,
                                                   const std::string& extension, std::error_code& failure);

}  // namespace farandole
