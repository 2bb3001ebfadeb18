#include "farandole/comm/queue/tickets.h"

#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using Clock = std::chrono::steady_clock;

// std::nullopt: no limit. A duration that the clock cannot hold is none.
std::optional<Clock::time_point> end_of(Tickets::Limit limit) {
  constexpr std::chrono::duration<double> longest = std::chrono::hours(24 * 365 * 10);
  if (!limit || *limit > longest) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*limit);
}

// Returns false if the time has passed.
template <class Condition>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                std::optional<Clock::time_point> end, Condition condition) {
  if (end) return changed.wait_until(lock, *end, condition);
  changed.wait(lock, condition);
  return true;
}

}  // namespace

Ticket Tickets::open(TicketWorker& worker) {
  calls_[++last_].worker = &worker;
  return last_;
}

void Tickets::end(Ticket ticket, std::exception_ptr error) {
  const auto found = calls_.find(ticket);
  auto& call = found->second;
  if (call.notifies) {
    calls_.erase(found);
    done_calls_.push_back({ticket, std::move(error)});
    done_.notify_one();
    return;
  }
  call.error = std::move(error);
  call.ended.store(true, std::memory_order_release);
  if (call.is_awaited) ended_.notify_all();
}

bool Tickets::has_ended(Ticket ticket) {
  return find(ticket).ended.load(std::memory_order_relaxed);
}

Tickets::Call& Tickets::find(Ticket ticket) {
  const auto found = calls_.find(ticket);
  if (found == calls_.end() || found->second.notifies)
    throw UserError(fmt::format(
        "ticket {} is unknown; a ticket can be waited for once, and not if notify() was called for it",
        ticket));
  return found->second;
}

bool Tickets::wait(Ticket ticket, Limit limit) {
  const auto end = end_of(limit);
  std::unique_lock lock(mutex_);
  auto& call = find(ticket);
  if (call.is_awaited) throw UserError(fmt::format("two threads wait for ticket {}", ticket));
  auto& worker = *call.worker;
  call.is_awaited = true;
  const auto has_ended = [&] { return call.ended.load(std::memory_order_acquire); };
  while (!limit && !has_ended() && worker.help(lock, ticket)) {
  }
  if (!has_ended() && spin_.count() > 0) {
    lock.unlock();
    const auto give_up = Clock::now() + spin_;
    while (!has_ended() && Clock::now() < give_up && !(end && Clock::now() >= *end)) {
    }
    lock.lock();
  }
  if (!has_ended()) {
    worker.note_sleeper(ticket);
    if (!wait_until(ended_, lock, end, has_ended)) {
      worker.note_sleeper(0);
      call.is_awaited = false;
      return false;
    }
  }
  const auto error = std::move(call.error);
  calls_.erase(ticket);
  if (error != nullptr) std::rethrow_exception(error);
  return true;
}

bool Tickets::ended(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return has_ended(ticket);
}

void Tickets::notify(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  auto& call = find(ticket);
  if (call.is_awaited) throw UserError(fmt::format("a thread waits for ticket {} already", ticket));
  call.notifies = true;
  if (call.ended.load(std::memory_order_relaxed)) end(ticket, std::move(call.error));
}

std::optional<Tickets::Done> Tickets::next_done(Limit limit) {
  const auto end = end_of(limit);
  std::unique_lock lock(mutex_);
  wait_until(done_, lock, end, [this] { return closed_ || !done_calls_.empty(); });
  if (done_calls_.empty()) return std::nullopt;
  auto done = std::move(done_calls_.front());
  done_calls_.pop_front();
  return done;
}

void Tickets::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  done_.notify_all();
}

bool Tickets::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace farandole
