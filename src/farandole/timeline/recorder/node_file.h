// One file for all recorders of a node, RUN/recorder/node-HOST-CLOCK.ftl, so that a job of 1,024 ranks leaves
// 128 files. Each rank has its own file while it runs. Afterwards, those of a node are put together:
//
//   part × ranks of the node, each from a multiple of 4096 on
//
// A part is a recorder's file, cut after its last record; its header says where the next part is. Its path is
// that of a file in a folder, RUN/recorder/node-HOST-CLOCK.ftl/rank-0003.ftl, which RecorderFile opens.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

bool is_node_file(const std::filesystem::path& file);  // by its name

// The paths of the parts. A part whose header is damaged is called part-OFFSET.ftl.
std::vector<std::filesystem::path> parts_of(const std::filesystem::path& node_file);

struct OpenedPart {
  OwnedDescriptor fd;  // of the node's file; negative, and errno is set, if there is no such part
  std::uint64_t begin = 0, bytes = 0;
};
OpenedPart open_part(const std::filesystem::path& part);

// The recorders in `folder`, by file name: the destinations of rank files (staging_file.h), and parts. A kill
// can leave a rank's file beside its part; the file then counts.
std::vector<std::filesystem::path> recorders_in(const std::filesystem::path& folder,
                                                std::error_code& failure);
// Where that of one rank can be read.
std::optional<std::filesystem::path> readable_recorder(const std::filesystem::path& run_dir, int rank);

// Each rank of a node calls this after it has closed its recorder. The last one puts the recorders of these
// ranks together; no rank waits for another, and ranks of other hosts are left out. Returns whether this call
// has done it. A kill at any moment leaves all rank files, or the node's file. Nothing is synchronized
// (fsync), as recorders are not. After an error, and on a file system without locks, the rank files stay.
bool pack_node(const std::filesystem::path& run_dir, std::span<const int> ranks) noexcept;

// A reader does the same for all nodes of a run, and synchronizes. Files of ranks that may still run stay.
void pack_nodes(const std::filesystem::path& run_dir) noexcept;

// Whether the rank of this file has closed it, or was killed on this host.
bool recorder_has_ended(const std::filesystem::path& file) noexcept;

}  // namespace farandole
