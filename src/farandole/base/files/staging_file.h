// A file that is written on the node's local disk and copied to its destination on a shared file system
// afterwards. A symbolic link beside the destination, DESTINATION with the extension .node, leads to the
// local file and is valid only on that node. Any process of the node may copy the file, because its writer
// may have been killed. A file is removed only if it was made for a destination in this very folder: links in
// a copy of the folder, and other links, never lead to a removal.
// Thread safety: any thread may call this at any time. So may different processes of the node: a
// file lock (flock) makes each one wait while another copies.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace farandole {

std::filesystem::path node_link(const std::filesystem::path& destination);

// Creates the link and returns the path in `node_folder` where the caller creates the file. Removes what an
// earlier run has left at the destination or in `node_folder`.
// Throws: Error if the link cannot be created.
std::filesystem::path stage_in(const std::filesystem::path& destination,
                               const std::filesystem::path& node_folder);
// Removes the same leftovers for a caller that writes directly at the destination.
void forget_staged(const std::filesystem::path& destination);

// Copies the file as it is now to the destination. Empty blocks become holes. Returns false if no link leads
// to a file on this node.
// Throws: Error if copying fails. The destination is then unchanged.
bool copy_out(const std::filesystem::path& destination);
// Copies the file to the destination, and removes the local file and the link. If a process was killed during
// this, the next call removes what it left.
bool stage_out(const std::filesystem::path& destination);
// Calls stage_out() for each file of `folder` that ends in `extension` and is on this node.
void stage_out_all(const std::filesystem::path& folder, const std::string& extension);
// Does the same as far as possible. Returns why files may remain on this node, a line for each.
std::vector<std::string> try_to_stage_out_all(const std::filesystem::path& folder,
                                              const std::string& extension);

// The path to read from: the local file if it is on this node, otherwise the destination.
std::filesystem::path readable_at(const std::filesystem::path& destination);
// Lists the destinations in `folder` that end in `extension`, in order of name, including those of
// which only the link exists. If the list may be incomplete because `folder` could not be read to its
// end, `failure` says why.
std::vector<std::filesystem::path> staged_files_in(const std::filesystem::path& folder,
                                                   const std::string& extension, std::error_code& failure);

}  // namespace farandole
