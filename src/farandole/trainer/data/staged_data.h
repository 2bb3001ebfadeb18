// Reads the data of a run from a disk of each node (--data-scratch).
// Thread safety: call from the training thread only.
#pragma once

#include <string>

#include "farandole/train/session.h"
#include "farandole/trainer/data/dataset.h"

namespace farandole {

// Like open_data(). If `scratch` is not empty, one rank of each node first copies the data to a folder of its
// node, so that the parallel file system is read once for each node and not once for each rank. `scratch` is
// that folder, or "auto", which copies only from a network file system and chooses the folder as
// place_recorder() does. The copy is removed as soon as all ranks of the job have read it.
// Collective: every rank of the group must call this in the same order.
// Throws: as open_data(), and UserError if the folder cannot be written or has no room.
DataSplit open_staged_data(Session& session, const DataOptions& options, const std::string& scratch);

}  // namespace farandole
