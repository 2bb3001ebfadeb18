#include "farandole/comm/queue/operation_queue.h"

#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/watch/collective_registry.h"

namespace farandole {

OperationQueue::OperationQueue(std::unique_ptr<Communicator> communicator, Tickets& tickets,
                               std::function<void()> on_thread_start)
    : communicator_(std::move(communicator)),
      tickets_(tickets),
      on_thread_start_(std::move(on_thread_start)),
      owner_(own_thread()) {
  note();
}

OperationQueue::~OperationQueue() {
  {
    std::unique_lock lock(tickets_.mutex());
    stop_ = true;
    while (runner_ != 0 || !pending_.empty())
      if (runner_ == 0)
        run_next(lock);
      else
        changed_.wait(lock);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Ticket OperationQueue::start(Operation operation) {
  std::unique_lock lock(tickets_.mutex());
  if (!thread_.joinable()) thread_ = start_quiet_thread([this] { work(); });
  const auto ticket = tickets_.open(*this);
  pending_.emplace_back(ticket, std::move(operation));
  note();
  const bool wakes = runner_ == 0;
  lock.unlock();
  if (wakes) changed_.notify_one();
  return ticket;
}

void OperationQueue::run(const Operation& operation) {
  {
    std::unique_lock lock(tickets_.mutex());
    if (runner_ == 0 && pending_.empty()) {
      if (const auto error = run_now(lock, 0, operation)) std::rethrow_exception(error);
      return;
    }
  }
  tickets_.wait(start(operation));
}

bool OperationQueue::help(std::unique_lock<std::mutex>& lock, Ticket) {
  if (runner_ != 0) return false;
  run_next(lock);
  return true;
}

void OperationQueue::note_sleeper(Ticket awaited) {
  if (own_thread() != owner_) return;
  owner_awaits_ = awaited;
  note();
}

// Tells the watchdog what threads other than the owner do.
void OperationQueue::note() {
  communicator_->note_servant(!pending_.empty() || (runner_ != 0 && runner_ != owner_), owner_awaits_ != 0);
}

// Runs an operation with the lock released. `ticket` is 0 if it has none.
std::exception_ptr OperationQueue::run_now(std::unique_lock<std::mutex>& lock, Ticket ticket,
                                           const Operation& operation) {
  if (failure_ != nullptr) return failure_;
  runner_ = own_thread();
  note();
  lock.unlock();
  std::exception_ptr error;
  try {
    operation(*communicator_);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  runner_ = 0;
  // Said before the owner has woken up, because the next operation may begin before.
  if (owner_awaits_ == ticket) owner_awaits_ = 0;
  note();
  if (error != nullptr) failure_ = error;
  if (!pending_.empty() || stop_) changed_.notify_all();
  return error;
}

void OperationQueue::run_next(std::unique_lock<std::mutex>& lock) {
  const auto [ticket, operation] = std::move(pending_.front());
  pending_.pop_front();
  auto error = run_now(lock, ticket, operation);
  tickets_.end(ticket, std::move(error));
}

void OperationQueue::work() {
  if (on_thread_start_) on_thread_start_();
  std::unique_lock lock(tickets_.mutex());
  for (;;) {
    changed_.wait(lock, [this] { return runner_ == 0 && (stop_ || !pending_.empty()); });
    if (pending_.empty()) return;
    run_next(lock);
  }
}

}  // namespace farandole
