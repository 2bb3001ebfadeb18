// Lets the streams of several processes wait for each other, while their hosts go on.
// Thread safety: none; use from one thread at a time.
//
// Each rank has a row of counters in memory of the host, one counter for each other rank. When a rank's
// stream comes to a meeting, it writes the number of the meeting into its counters in the rows of all other
// ranks. Then it waits until all counters of its own row have this number. The streams do so themselves
// (cuStreamWriteValue32, cuStreamWaitValue32). No kernel runs meanwhile, so ranks that share a GPU cannot
// block each other. The host can end the wait for a rank that was lost, which it could not with events of
// another process: it writes into the row of its own rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/shm/shared_arena.h"

namespace farandole {

class StreamMeeting {
 public:
  // Throws: Error on all ranks if they cannot share memory; Error if the driver cannot do this.
  // Collective: every rank of `bootstrap` must call this in the same order.
  StreamMeeting(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime);
  ~StreamMeeting();
  StreamMeeting(const StreamMeeting&) = delete;
  StreamMeeting& operator=(const StreamMeeting&) = delete;

  // Queues a meeting: work that is queued on the stream from now on runs after the work that the other ranks
  // have queued before the same meeting.
  void meet(CUstream_st* stream);
  // All meetings that were queued end now. Only the stream of a lost rank could still keep them from it, if
  // it comes to a meeting afterwards; therefore call this again and again.
  void abort();
  // The host of this rank does not use the memory of others any more, and the same of all other ranks.
  void leave();
  bool all_have_left() const;

 private:
  struct Driver;  // the functions of the driver
  std::uint32_t* counter(int row, int of) const;
  std::uint64_t on_device(int row, int of) const;
  void check(int result, const char* call) const;

  const int rank_, size_;
  const std::shared_ptr<const GpuRuntime> runtime_;
  const std::unique_ptr<const Driver> driver_;
  const NodeMemory memory_;
  std::vector<std::uint64_t> rows_;  // as devices address them, by rank
  std::uint32_t meetings_ = 0;
};

}  // namespace farandole
