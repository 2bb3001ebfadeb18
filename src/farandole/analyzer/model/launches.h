// Links the work of GPUs to the calls that launched it, as other profilers record them: when it was launched,
// in which phase, and in which range of the program. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <map>

#include "farandole/analyzer/model/packed_events.h"
#include "farandole/analyzer/model/trace_collector.h"

namespace farandole {

// The work of each device, ordered by start. `training` is one of the threads, or nullptr;
// `training_spans` are its phases, with those of its operators. PyTorch runs the backward pass on threads
// of its own, while the training thread waits in the range around it. Therefore its ranges count for
// launches of threads that have none.
std::map<std::int64_t, PackedNamedSpans> linked_gpu_work(std::map<std::int64_t, CollectedThread>& threads,
                                                         const CollectedThread* training,
                                                         const PackedSpans& training_spans);

}  // namespace farandole
