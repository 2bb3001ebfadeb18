// Where a step's full buckets wait for their reduction. Buckets come and are reduced in the plan's order.
//
// The transport decides who reduces. Where it has a non-blocking allreduce, the training thread drives the
// reduction. Where it has none, as between nodes, or where gradients are compressed, a communication thread
// reduces beside the training thread.
//
// Neither way is faster on one node. Measured with `farandole bench step` on 2 cores, both ways in turns: the
// time of a step with communication, divided by that of the same step without, median (quartiles).
//
//   ranks  model  training thread      communication thread
//   2      mlp    1.08 (0.94 to 1.34)  1.12 (1.06 to 1.30)
//   2      gpt    0.90 (0.81 to 1.07)  1.01 (0.92 to 1.08)
//   2      mnist  1.01 (0.98 to 1.05)  1.02 (0.97 to 1.13)
//   4      mlp    1.07 (1.03 to 1.09)  1.06 (1.01 to 1.07)
//   4      mnist  1.02 (0.99 to 1.05)  1.01 (0.98 to 1.06)
//
// So the thread can go when MPI and the compressors have a non-blocking way as well.
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

  // The step's next bucket is full. One thread at a time, as poll().
  virtual void push() = 0;
  // An opportunity to get on that waits for nobody.
  virtual void poll() = 0;
  // Until so many of the step's buckets are reduced, which have been pushed. Throws what their reduction
  // threw.
  virtual void await(std::size_t buckets) = 0;
  // After all are reduced: the next push() is the first bucket again.
  virtual void restart() = 0;
};

// `reduce(b)` reduces bucket b; from here on, only the communication thread calls it. The destructor waits
// for a reduction that runs.
std::unique_ptr<ReductionQueue> reduce_on_thread(std::function<void(std::size_t bucket)> reduce,
                                                 Timeline& timeline);

// `start(b)` starts bucket b on `allreduce`, which outlives the queue. Used by the training thread alone.
std::unique_ptr<ReductionQueue> reduce_from_caller(std::function<void(std::size_t bucket)> start,
                                                   NonblockingAllreduce& allreduce, Timeline& timeline);

}  // namespace farandole
