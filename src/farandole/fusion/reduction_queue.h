// Where a step's full buckets wait for their reduction, and who reduces them: a thread of its own, or the
// training thread in passing. Buckets come and are reduced in the plan's order.
//
// Measured with 2 ranks on 2 cores (bench step --progress thread|passing; mlp, gpt, mnist): no difference
// that noise does not hide, so `automatic` takes the one without a thread. A thread is for ranks with cores
// to spare.
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

// `reduce(b)` reduces bucket b; from here on the thread alone calls it. The destructor waits for one that
// runs.
std::unique_ptr<ReductionQueue> reduce_on_thread(std::function<void(std::size_t bucket)> reduce,
                                                 Timeline& timeline);

// `start(b)` starts bucket b on `allreduce`, which outlives the queue. Used by the training thread alone.
std::unique_ptr<ReductionQueue> reduce_from_caller(std::function<void(std::size_t bucket)> start,
                                                   NonblockingAllreduce& allreduce, Timeline& timeline);

}  // namespace farandole
