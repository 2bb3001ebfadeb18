// Asynchronous collectives of one communicator, in the order of the calls.
//
// One operation runs at a time. It runs on the queue's own thread, or on a thread that waits for it or for a
// later one and finds that nobody runs it. The second way makes a call that is waited for at once as cheap as
// a synchronous one, because no other thread has to wake up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "farandole/comm/communicator.h"
#include "farandole/comm/queue/tickets.h"

namespace farandole {

// Thread safety: any thread may call this at any time.
// Collective: every rank of the group must start the same operations in the same order.
class OperationQueue : private TicketWorker {
 public:
  using Operation = std::function<void(Communicator&)>;

  // Call this on the thread that made the communicator (Communicator::note_servant). `tickets` must outlive
  // the queue. The queue's thread first calls `on_thread_start`, for example to name itself in the timeline.
  OperationQueue(std::unique_ptr<Communicator> communicator, Tickets& tickets,
                 std::function<void()> on_thread_start = {});
  // Waits until all operations have ended.
  ~OperationQueue() override;

  // Returns at once. Check the arguments before (check_reduction(), check_root()), because the communicator
  // cannot be used after an error. All later operations then fail with the same error.
  Ticket start(Operation operation);
  // Returns when the operation has ended. If the queue is empty, it runs on the calling thread.
  // Throws: the error of the operation.
  void run(const Operation& operation);

  // For its rank and size, which may be read at any time. Only operations call its other functions.
  const Communicator& communicator() const { return *communicator_; }

 private:
  using Pending = std::pair<Ticket, Operation>;

  bool help(std::unique_lock<std::mutex>& lock, Ticket awaited) override;
  void note_sleeper(Ticket awaited) override;
  void note();
  std::exception_ptr run_now(std::unique_lock<std::mutex>& lock, Ticket ticket, const Operation& operation);
  void run_next(std::unique_lock<std::mutex>& lock);
  void work();

  const std::unique_ptr<Communicator> communicator_;
  Tickets& tickets_;
  const std::function<void()> on_thread_start_;
  const std::int32_t owner_;  // the thread that made this
  // The mutex of the tickets guards what follows.
  std::deque<Pending> pending_;
  std::int32_t runner_ = 0;  // the thread that is in an operation; 0: none
  Ticket owner_awaits_ = 0;  // in its sleep; 0: nothing
  bool stop_ = false;
  std::exception_ptr failure_;
  std::condition_variable changed_;
  std::thread thread_;  // starts with the first start()
};

}  // namespace farandole
