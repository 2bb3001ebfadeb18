// What a group of farandole/capi.h stands for.
// Thread safety: as its parts.
#pragma once

#include <memory>

#include "farandole/comm/communicator.h"
#include "farandole/comm/queue/operation_queue.h"
#include "farandole/comm/queue/point_to_point.h"

namespace farandole::capi {

class GroupHandle {
 public:
  GroupHandle(std::unique_ptr<Communicator> communicator, MPI_Comm ranks, Tickets& tickets,
              MessageProgress& progress, std::function<void()> on_thread_start)
      : queue(std::move(communicator), tickets, std::move(on_thread_start)), messages(ranks, progress) {}

  ScratchBuffer scratch;  // Of reduce(); outlives its last use in the queue.
  OperationQueue queue;
  PointToPoint messages;
};

}  // namespace farandole::capi
