// Saves the state of every rank's compressor in a snapshot and restores it. Call these functions while
// no gradients are reduced.
// Thread safety: call from the training thread only.
#pragma once

#include "farandole/checkpoint/snapshot.h"
#include "farandole/fusion/compression.h"
#include "farandole/fusion/compressor.h"
#include "farandole/train/session.h"

namespace farandole {

// Adds the parts of all ranks to the snapshot on rank 0 as /compression/KIND/rank-0000/PART.
// Collective: every rank of the group must call this in the same order.
void capture_compression(Session& session, const Compression& compression, const Compressor& compressor,
                         SnapshotBuilder& snapshot);

// Rank 0 passes the snapshot, the others pass nullptr; every rank's compressor gets its own parts. A rank
// without saved parts starts with an empty state, and so do all ranks if the compression has changed.
// Collective: every rank of the group must call this in the same order.
void restore_compression(Session& session, const Compression& compression, Compressor& compressor,
                         const Snapshot* snapshot);

}  // namespace farandole
