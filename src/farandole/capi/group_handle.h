// What a group of farandole/capi.h stands for.
// Thread safety: any thread may call this at any time. Functions say where this is not so.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "farandole/comm/communicator.h"
#include "farandole/comm/queue/operation_queue.h"
#include "farandole/comm/queue/point_to_point.h"
#include "farandole/comm/wrap/join_communicator.h"

namespace farandole::capi {

class GroupHandle {
 public:
  GroupHandle(std::unique_ptr<Communicator> communicator, std::unique_ptr<PointToPoint> of_messages,
              Tickets& tickets, std::function<void()> on_thread_start)
      : queue(std::move(communicator), tickets, std::move(on_thread_start)),
        messages(std::move(of_messages)) {}

  ScratchBuffer scratch;                 // Of reduce(); outlives its last use in the queue.
  JoinCommunicator* joinable = nullptr;  // Below the queue's communicator; used by its operations.
  OperationQueue queue;
  const std::unique_ptr<PointToPoint> messages;
};

}  // namespace farandole::capi
