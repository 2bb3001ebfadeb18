#include "farandole/comm/queue/point_to_point.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

constexpr std::size_t most_sent_at_once = std::size_t{64} << 10;  // longer messages are offered
constexpr std::size_t message_piece = std::size_t{256} << 10;
constexpr int pieces_asked_for = 4;  // before the first one has come

std::string describe(std::size_t bytes, bool receives, int peer, int tag) {
  return fmt::format("the message of {} bytes {} {} with tag {}", bytes, receives ? "from" : "to",
                     peer == PointToPoint::any_source ? "any rank" : fmt::format("rank {}", peer), tag);
}

}  // namespace

PointToPoint::PointToPoint(std::unique_ptr<MessageChannel> channel, Tickets& tickets)
    : channel_(std::move(channel)), tickets_(tickets) {}

PointToPoint::~PointToPoint() {
  std::unique_lock lock(tickets_.mutex());
  stop_ = true;
  changed_.notify_all();
  tell(channel_->rank(), {Kind::refusal, 0, 0, 0});  // Wakes the thread that reads.
  changed_.wait(lock, [this] { return !is_reading_; });
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  lock.lock();
  end_all(nullptr);
}

void PointToPoint::check(int peer, int tag) const {
  if (peer < 0 || peer >= channel_->size())
    throw UserError(fmt::format("a message to or from rank {}, but the group has only the ranks 0 to {}",
                                peer, channel_->size() - 1));
  if (tag < 0) throw UserError(fmt::format("a message with tag {}; tags must not be negative", tag));
}

Ticket PointToPoint::begin_send(const void* data, std::size_t bytes, int peer, int tag) {
  check(peer, tag);
  const auto* const from = static_cast<const std::byte*>(data);
  if (bytes <= most_sent_at_once) {
    tell(peer, {Kind::whole, tag, bytes, 0}, from, bytes);
    const auto ticket = tickets_.open(*this);
    tickets_.end(ticket);
    return ticket;
  }
  tell(peer, {Kind::offer, tag, bytes, ++offers_});
  const auto ticket = tickets_.open(*this);
  sends_.insert({offers_, {const_cast<std::byte*>(from), bytes, peer, tag, nullptr, ticket}});
  return ticket;
}

Ticket PointToPoint::begin_receive(void* data, std::size_t bytes, int source, int tag, int* sender) {
  check(source == any_source ? 0 : source, tag);
  while (!is_reading_)
    if (auto message = channel_->receive_any())
      handle(std::move(*message));
    else
      break;
  const Transfer receive{static_cast<std::byte*>(data), bytes, source, tag, sender, tickets_.open(*this)};
  const auto fits = [&](const Envelope& envelope) {
    return envelope.head.tag == tag && (source == any_source || source == envelope.from);
  };
  if (const auto found = std::ranges::find_if(arrived_, fits); found != arrived_.end()) {
    take(*found, receive);
    arrived_.erase(found);
  } else {
    receives_.push_back(receive);
  }
  return receive.ticket;
}

Ticket PointToPoint::start_send(const void* data, std::size_t bytes, int peer, int tag) {
  const std::lock_guard lock(tickets_.mutex());
  const auto ticket = begin_send(data, bytes, peer, tag);
  start_thread_if_needed();
  return ticket;
}

Ticket PointToPoint::start_receive(void* data, std::size_t bytes, int source, int tag, int* sender) {
  const std::lock_guard lock(tickets_.mutex());
  const auto ticket = begin_receive(data, bytes, source, tag, sender);
  start_thread_if_needed();
  return ticket;
}

// The thread that calls send() or receive() reads, so no other one is needed.
void PointToPoint::send(const void* data, std::size_t bytes, int peer, int tag) {
  std::unique_lock lock(tickets_.mutex());
  const auto ticket = begin_send(data, bytes, peer, tag);
  lock.unlock();
  tickets_.wait(ticket);
}

int PointToPoint::receive(void* data, std::size_t bytes, int source, int tag) {
  int sender = source;
  std::unique_lock lock(tickets_.mutex());
  const auto ticket = begin_receive(data, bytes, source, tag, &sender);
  lock.unlock();
  tickets_.wait(ticket);
  return sender;
}

// The thread reads while there are messages that have not ended, and no thread that waits for one
// of them does.
void PointToPoint::start_thread_if_needed() {
  if (is_idle() || is_reading_) return;
  if (!thread_.joinable()) thread_ = start_quiet_thread([this] { work(); });
  changed_.notify_all();
}

void PointToPoint::work() {
  std::unique_lock lock(tickets_.mutex());
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || (!is_reading_ && !is_idle()); });
    if (!stop_) read(lock, [this] { return is_idle(); });
  }
}

bool PointToPoint::help(std::unique_lock<std::mutex>& lock, Ticket awaited) {
  if (is_reading_ || stop_) return false;
  read(lock, [&] { return tickets_.has_ended(awaited); });
  return true;
}

// Handles messages as they come, with the lock released during waits, until done() or the end.
void PointToPoint::read(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  constexpr std::chrono::seconds longest_wait{1};
  is_reading_ = true;
  while (!stop_ && !done()) try {
      lock.unlock();
      auto message = channel_->wait_any(longest_wait);
      lock.lock();
      if (message) handle(std::move(*message));
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      end_all(std::current_exception());
    }
  is_reading_ = false;
  if (!stop_) return start_thread_if_needed();
  changed_.notify_all();
}

void PointToPoint::handle(Message message) {
  Head head;
  std::memcpy(&head, message.bytes.data(), sizeof head);
  if (head.kind == Kind::request) return send_piece(head.number);
  if (head.kind == Kind::piece) return take_piece(message.from, head, message.bytes);
  if (head.kind == Kind::refusal) {
    if (const auto send = sends_.find(head.number); send != sends_.end()) {
      tickets_.end(send->second.ticket);
      sends_.erase(send);
    }
    return;
  }
  const auto receive = std::ranges::find_if(receives_, [&](const Transfer& one) {
    return one.tag == head.tag && (one.peer == any_source || one.peer == message.from);
  });
  Envelope envelope{message.from, head, std::move(message.bytes)};
  if (receive == receives_.end()) {
    arrived_.push_back(std::move(envelope));
    return;
  }
  take(envelope, *receive);
  receives_.erase(receive);
}

void PointToPoint::take(const Envelope& envelope, const Transfer& receive) {
  const auto& [from, head, data] = envelope;
  if (head.bytes != receive.bytes) {
    if (head.kind == Kind::offer) tell(from, {Kind::refusal, 0, 0, head.number});
    const auto error = UserError(fmt::format(
        "{} cannot be received: the one that came has {}; send and receive the same number of bytes",
        describe(receive.bytes, true, receive.peer, receive.tag), head.bytes));
    return tickets_.end(receive.ticket, std::make_exception_ptr(error));
  }
  if (receive.sender != nullptr) *receive.sender = from;
  if (head.kind == Kind::whole) {
    if (head.bytes > 0) copy_bytes(receive.data, data.data() + sizeof head, head.bytes);
    return tickets_.end(receive.ticket);
  }
  coming_.insert({{from, head.number}, receive});
  for (int i = 0; i < pieces_asked_for; ++i) tell(from, {Kind::request, 0, 0, head.number});
}

// Its receiver may ask for more pieces than there are.
void PointToPoint::send_piece(std::uint64_t number) {
  const auto found = sends_.find(number);
  if (found == sends_.end()) return;
  auto& send = found->second;
  const std::size_t bytes = std::min(message_piece, send.bytes - send.moved);
  tell(send.peer, {Kind::piece, send.tag, send.bytes, number}, send.data + send.moved, bytes);
  send.moved += bytes;
  if (send.moved < send.bytes) return;
  tickets_.end(send.ticket);
  sends_.erase(found);
}

void PointToPoint::take_piece(int from, const Head& head, const std::vector<std::byte>& message) {
  const auto found = coming_.find({from, head.number});
  auto& receive = found->second;
  const std::size_t bytes = message.size() - sizeof head;
  copy_bytes(receive.data + receive.moved, message.data() + sizeof head, bytes);
  receive.moved += bytes;
  if (receive.moved < receive.bytes) return tell(from, {Kind::request, 0, 0, head.number});
  tickets_.end(receive.ticket);
  coming_.erase(found);
}

void PointToPoint::tell(int to, const Head& head, const std::byte* data, std::size_t bytes) {
  std::vector<std::byte> message(sizeof head + bytes);
  std::memcpy(message.data(), &head, sizeof head);
  if (bytes > 0) copy_bytes(message.data() + sizeof head, data, bytes);
  channel_->send(to, message);
}

// Without an error: because this ends.
void PointToPoint::end_all(const std::exception_ptr& error) {
  const auto end = [&](const Transfer& transfer, bool receives) {
    tickets_.end(
        transfer.ticket,
        error != nullptr
            ? error
            : std::make_exception_ptr(Error(describe(transfer.bytes, receives, transfer.peer, transfer.tag) +
                                            " did not end before the job")));
  };
  for (const auto& receive : receives_) end(receive, true);
  for (const auto& [offer, receive] : coming_) end(receive, true);
  for (const auto& [number, send] : sends_) end(send, false);
  receives_.clear();
  coming_.clear();
  sends_.clear();
}

}  // namespace farandole
