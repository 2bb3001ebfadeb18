// The queue of a step's full buckets in memory of the host. They are added and reduced in the order
// of the plan.
//
// The transport determines who reduces. If it has a non-blocking allreduce, the training thread drives the
// reduction. If it has none (MPI alone), or if gradients are compressed, a communication thread reduces
// concurrently with the training thread.
//
// Neither way is faster on one node. Measured with `farandole bench step` on 2 cores, both ways alternately:
// the duration of a step with communication divided by that of the same step without it, median (quartiles).
//
//   ranks  model  training thread      communication thread
//   2      mlp    1.08 (0.94 to 1.34)  1.12 (1.06 to 1.30)
//   2      gpt    0.90 (0.81 to 1.07)  1.01 (0.92 to 1.08)
//   2      mnist  1.01 (0.98 to 1.05)  1.02 (0.97 to 1.13)
//   4      mlp    1.07 (1.03 to 1.09)  1.06 (1.01 to 1.07)
//   4      mnist  1.02 (0.99 to 1.05)  1.01 (0.98 to 1.06)
//
// One way on OperationQueue (comm/queue/operation_queue.h) instead of both saves 220 lines, but it was slower
// on 2 ranks with `--shard off`: mnist 1.24 (1.10 to 1.37) against 1.08 (1.02 to 1.18); mlp and gpt were
// equal. The communication thread can be removed when MPI and the compressors have a non-blocking way too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "farandole/comm/communicator.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class ReductionQueue {
 public:
  virtual ~ReductionQueue() = default;

  // The next bucket of the step is full.
  // Thread safety: none; use from one thread at a time.
  virtual void push() = 0;
  // An opportunity to make progress without waiting.
  virtual void poll() = 0;
  // Waits until this number of the step's buckets is reduced. They must have been pushed.
  // Throws: the error of a reduction that failed.
  virtual void await(std::size_t buckets) = 0;
  // Call this after all buckets are reduced. The next push() is the first bucket again.
  virtual void restart() = 0;
};

// `reduce(b)` reduces bucket b on `communicator`, which must outlive the queue. From now on only the
// communication thread calls it. The destructor waits for a reduction that is running.
std::unique_ptr<ReductionQueue> reduce_on_thread(std::function<void(std::size_t bucket)> reduce,
                                                 Communicator& communicator, Timeline& timeline);

// `start(b)` starts bucket b on `allreduce`, which must outlive the queue.
// Thread safety: call from the training thread only.
std::unique_ptr<ReductionQueue> reduce_from_caller(std::function<void(std::size_t bucket)> start,
                                                   NonblockingAllreduce& allreduce, Timeline& timeline);

}  // namespace farandole
