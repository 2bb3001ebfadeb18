// The tickets of operations that were started and end later: waiting for them, and telling their ends.
// Thread safety: any thread may call this at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace farandole {

using Ticket = std::int64_t;  // positive, unique in the process

// Carries out operations that have tickets. The mutex of the tickets is held when the functions are called.
class TicketWorker {
 public:
  virtual ~TicketWorker() = default;
  // Works on the calling thread, which waits for `awaited` without a limit. This saves the
  // hand-over to another thread. Returns false at once if another thread is at work; otherwise
  // `lock` is released meanwhile.
  virtual bool help(std::unique_lock<std::mutex>& lock, Ticket awaited) = 0;
  // The calling thread begins to sleep until this operation has ended. 0: it sleeps no longer, although the
  // operation has not ended.
  virtual void note_sleeper(Ticket /*awaited*/) {}
};

// One object per process, which all queues and messages share. It must outlive them.
class Tickets {
 public:
  struct Done {
    Ticket ticket = 0;
    std::exception_ptr error;  // null: the operation has succeeded
  };
  using Limit = std::optional<std::chrono::duration<double>>;

  // A thread that waits spins for this time before it sleeps. Spinning takes a core from the thread that
  // works, so it helps only if there are at least two cores for each rank.
  explicit Tickets(std::chrono::nanoseconds spin = {}) : spin_(spin) {}
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  // Waits until the operation has ended. Returns false if the limit has passed; the ticket then stays valid.
  // Without a limit, the calling thread may carry out the operation and those before it.
  // Throws: the error of the operation. UserError if a thread waits or has waited for the ticket, or if
  // next_done() tells its end.
  bool wait(Ticket ticket, Limit limit = std::nullopt);
  // True if wait() would return at once.
  // Throws: UserError as wait().
  bool ended(Ticket ticket);
  // next_done() tells the end of this operation. There is no wait() for it.
  // Throws: UserError as wait().
  void notify(Ticket ticket);
  // Waits for the end of an operation that was marked with notify(), in the order in which they end.
  // std::nullopt if the limit has passed, or if close() was called and all ends were told.
  std::optional<Done> next_done(Limit limit = std::nullopt);
  // From now on, next_done() does not wait, and threads that wait in it return.
  void close();
  bool is_closed();

  // The following is for those who carry out operations. Hold the mutex when calling the last three.
  std::mutex& mutex() { return mutex_; }
  Ticket open(TicketWorker& worker);  // which lives until the operation has ended
  bool has_ended(Ticket ticket);
  void end(Ticket ticket, std::exception_ptr error = nullptr);

 private:
  struct Call {
    TicketWorker* worker = nullptr;
    std::exception_ptr error;
    std::atomic<bool> ended{false};
    bool notifies = false;
    bool is_awaited = false;
  };
  Call& find(Ticket ticket);

  const std::chrono::nanoseconds spin_;
  std::mutex mutex_;
  std::condition_variable ended_, done_;
  std::unordered_map<Ticket, Call> calls_;
  std::deque<Done> done_calls_;
  Ticket last_ = 0;
  bool closed_ = false;
};

}  // namespace farandole
