// What every rank's compressor remembers, in a snapshot and back. Used by the training thread while no
// gradients are reduced.
#pragma once

#include "farandole/checkpoint/snapshot.h"
#include "farandole/fusion/compression.h"
#include "farandole/fusion/compressor.h"
#include "farandole/train/session.h"

namespace farandole {

// Collective: on rank 0 adds the parts of all ranks as /compression/KIND/rank-0000/PART.
void capture_compression(Session& session, const Compression& compression, const Compressor& compressor,
                         Snapshot& snapshot);

// Collective: rank 0 has the snapshot (others pass nullptr), every rank's compressor gets its own parts. A
// rank that the saved run did not have, and every rank where the compression was another, starts anew.
void restore_compression(Session& session, const Compression& compression, Compressor& compressor,
                         const Snapshot* snapshot);

}  // namespace farandole
