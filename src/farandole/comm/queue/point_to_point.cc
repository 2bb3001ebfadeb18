#include "farandole/comm/queue/point_to_point.h"

#include <chrono>
#include <climits>
#include <fmt/format.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {
namespace {

// A receive may wait for minutes, and the ranks that it waits for need the cores.
void pause_after(int tests) {
  if (tests < 20)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(tests < 200 ? 10 : tests < 2000 ? 50 : 200));
}

std::string name_of(const MessageTransfer& transfer) {
  return fmt::format(
      "the message of {} bytes {} {} with tag {}", transfer.bytes, transfer.receives ? "from" : "to",
      transfer.peer == PointToPoint::any_source ? "any rank" : fmt::format("rank {}", transfer.peer),
      transfer.tag);
}

UserError wrong_size(const MessageTransfer& transfer, const std::string& found) {
  return UserError(fmt::format("{} cannot be received: {}; send and receive the same number of bytes",
                               name_of(transfer), found));
}

}  // namespace

bool MessageTransfer::test() {
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&request, &done, &status);
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) throw wrong_size(*this, "the one that came is longer");
  check_mpi(code, "MPI_Test", name_of(*this));
  if (done == 0) return false;
  if (!receives) return true;
  int got = 0;
  MPI_Get_count(&status, MPI_BYTE, &got);
  if (static_cast<std::size_t>(got) != bytes)
    throw wrong_size(*this, fmt::format("the one that came has {}", got));
  if (sender != nullptr) *sender = status.MPI_SOURCE;
  return true;
}

MessageProgress::~MessageProgress() {
  {
    const std::lock_guard lock(tickets_.mutex());
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(tickets_.mutex());
  transfers_.insert(transfers_.end(), added_.begin(), added_.end());
  for (auto& transfer : transfers_) {
    if (mpi_is_running()) {
      // MPI must not write into memory of the program later. It cannot cancel sends.
      if (transfer.receives) MPI_Cancel(&transfer.request);
      MPI_Request_free(&transfer.request);
    }
    tickets_.end(transfer.ticket,
                 std::make_exception_ptr(Error(name_of(transfer) + " did not end before the job")));
  }
}

Ticket MessageProgress::add(MessageTransfer transfer) {
  bool has_ended = false;
  std::exception_ptr error;
  try {
    has_ended = transfer.test();
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_lock lock(tickets_.mutex());
  transfer.ticket = tickets_.open(*this);
  if (has_ended || error != nullptr) {
    tickets_.end(transfer.ticket, error);
    return transfer.ticket;
  }
  if (!thread_.joinable()) thread_ = start_quiet_thread([this] { work(); });
  added_.push_back(transfer);
  lock.unlock();
  changed_.notify_one();
  return transfer.ticket;
}

// Asks for each message once, with the lock released. Returns true if one has ended.
bool MessageProgress::test(std::unique_lock<std::mutex>& lock) {
  is_testing_ = true;
  transfers_.insert(transfers_.end(), added_.begin(), added_.end());
  added_.clear();
  lock.unlock();
  std::vector<std::pair<Ticket, std::exception_ptr>> ended;
  std::erase_if(transfers_, [&](MessageTransfer& transfer) {
    try {
      if (!transfer.test()) return false;
      ended.emplace_back(transfer.ticket, nullptr);
    } catch (...) {
      ended.emplace_back(transfer.ticket, std::current_exception());
    }
    return true;
  });
  lock.lock();
  is_testing_ = false;
  for (auto& [ticket, error] : ended) tickets_.end(ticket, std::move(error));
  return !ended.empty();
}

// One helper is enough: it asks for the messages of all.
bool MessageProgress::help(std::unique_lock<std::mutex>& lock, Ticket awaited) {
  if (has_helper_) return false;
  has_helper_ = true;
  for (int tests = 0; !tickets_.has_ended(awaited); ++tests) {
    if (!is_testing_ && test(lock)) continue;
    lock.unlock();
    pause_after(tests);
    lock.lock();
  }
  has_helper_ = false;
  if (!transfers_.empty() || !added_.empty()) changed_.notify_one();
  return true;
}

void MessageProgress::work() {
  std::unique_lock lock(tickets_.mutex());
  for (int tests = 0;; ++tests) {
    const auto has_work = [this] { return !has_helper_ && (!transfers_.empty() || !added_.empty()); };
    if (!stop_ && !has_work()) {
      changed_.wait(lock, [&] { return stop_ || has_work(); });
      tests = 0;
    }
    if (stop_) return;
    if (test(lock)) tests = 0;
    lock.unlock();
    pause_after(tests);
    lock.lock();
  }
}

// The communicator is not freed, for the reason in MessageChannel.
PointToPoint::PointToPoint(MPI_Comm group, MessageProgress& progress)
    : progress_(progress), size_(size_of(group)) {
  check_mpi(MPI_Comm_dup(group, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

void PointToPoint::check(std::size_t bytes, int peer, int tag) const {
  if (bytes > INT_MAX)
    throw UserError(
        fmt::format("a message of {} bytes is too large; send it in pieces of less than 2 GiB", bytes));
  if (peer < 0 || peer >= size_)
    throw UserError(fmt::format("a message to or from rank {}, but the group has only the ranks 0 to {}",
                                peer, size_ - 1));
  if (tag < 0) throw UserError(fmt::format("a message with tag {}; tags must not be negative", tag));
}

MessageTransfer PointToPoint::begin_send(const void* data, std::size_t bytes, int peer, int tag) const {
  check(bytes, peer, tag);
  MessageTransfer transfer{.bytes = bytes, .peer = peer, .tag = tag};
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &transfer.request),
            "MPI_Isend", name_of(transfer));
  return transfer;
}

MessageTransfer PointToPoint::begin_receive(void* data, std::size_t bytes, int source, int tag,
                                            int* sender) const {
  check(bytes, source == any_source ? 0 : source, tag);
  MessageTransfer transfer{.bytes = bytes, .peer = source, .tag = tag, .receives = true, .sender = sender};
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source == any_source ? MPI_ANY_SOURCE : source,
                      tag, comm_, &transfer.request),
            "MPI_Irecv", name_of(transfer));
  return transfer;
}

Ticket PointToPoint::start_send(const void* data, std::size_t bytes, int peer, int tag) {
  return progress_.add(begin_send(data, bytes, peer, tag));
}

Ticket PointToPoint::start_receive(void* data, std::size_t bytes, int source, int tag, int* sender) {
  return progress_.add(begin_receive(data, bytes, source, tag, sender));
}

void PointToPoint::send(const void* data, std::size_t bytes, int peer, int tag) {
  auto transfer = begin_send(data, bytes, peer, tag);
  for (int tests = 0; !transfer.test(); ++tests) pause_after(tests);
}

int PointToPoint::receive(void* data, std::size_t bytes, int source, int tag) {
  int sender = source;
  auto transfer = begin_receive(data, bytes, source, tag, &sender);
  for (int tests = 0; !transfer.test(); ++tests) pause_after(tests);
  return sender;
}

}  // namespace farandole
