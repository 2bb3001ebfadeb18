#include "farandole/comm/gpu/device_flights.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

// How often a lost rank is looked for while collectives are in flight.
constexpr auto look_interval = std::chrono::milliseconds(10);
// How often the host asks for an event that it waits for. Each question takes a lock of the driver, and
// profilers record it.
constexpr auto await_interval = std::chrono::microseconds(20);
// A call of the library that lasts longer waits for other ranks.
constexpr auto short_call = std::chrono::milliseconds(1);

}  // namespace

DeviceFlights::DeviceFlights(std::shared_ptr<const GpuRuntime> runtime, int device, std::mutex& mutex,
                             std::span<const DevicePeer> peers, int rank,
                             const DeviceCommunicatorOptions& options, Library library)
    : runtime_(std::move(runtime)),
      device_(device),
      peers_(peers_to_watch(peers, rank)),
      entry_(options.registry != nullptr
                 ? options.registry->add(options.number, static_cast<int>(peers.size()))
                 : nullptr),
      launches_(options.launches),
      library_(std::move(library)),
      mutex_(mutex),
      thread_(start_quiet_thread([this] { watch(); })) {}

DeviceFlights::~DeviceFlights() {
  stop();
}

bool DeviceFlights::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.stop();
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  return !loss_ && all_reached();
}

bool DeviceFlights::all_reached() const {
  return std::all_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
    try {
      return flight.end->reached();
    } catch (const Error&) {
      return false;
    }
  });
}

void DeviceFlights::begin_start(const char* library) {
  if (entry_ != nullptr) entry_->enter(sequence_, "initialize", library, 0, now_ns());
  ++sequence_;
}

void DeviceFlights::end_start() {
  if (entry_ != nullptr) entry_->leave();
}

void DeviceFlights::throw_loss() const {
  if (loss_) throw Error(loss_->message, loss_->code);
}

void DeviceFlights::fail(DeviceLoss loss) {
  loss_ = std::move(loss);
  library_.abort();
  work_.notify_one();
}

std::optional<std::string> DeviceFlights::lost_peer() const {
  const auto lost = peers_.lost();
  if (!lost) return std::nullopt;
  return fmt::format("rank {} (pid {}) was lost, {}", lost->rank, lost->pid, lost->cause);
}

void DeviceFlights::queue(const char* operation, std::string_view name, std::size_t bytes,
                          CUstream_st* stream, const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  throw_loss();
  std::unique_ptr<GpuEvent> end;
  if (spare_.empty()) {
    end = std::make_unique<GpuEvent>(runtime_);
  } else {
    end = std::move(spare_.back());
    spare_.pop_back();
  }
  Flight flight{sequence_, operation, std::string(name), bytes, now_ns(), std::move(end)};
  queueing_ = &flight;
  if (flights_.empty()) show();
  work_.notify_one();
  try {
    work();
    if (launches_ != nullptr) launches_->add(name, flight.since_ns, now_ns());
    flight.end->record(stream);
  } catch (...) {
    queueing_ = nullptr;
    if (entry_ != nullptr) entry_->leave();
    throw;
  }
  queueing_ = nullptr;
  ++sequence_;
  if (entry_ != nullptr) entry_->set_queued(sequence_);
  flights_.push_back(std::move(flight));
}

void DeviceFlights::await_call(std::string_view waiting_in, const std::function<bool()>& in_progress) {
  const auto begin = std::chrono::steady_clock::now();
  while (in_progress()) {
    if (const auto lost = lost_peer())
      fail({fmt::format("{}, while this rank waited in {}", *lost, waiting_in), ExitCode::peer_lost});
    throw_loss();
    mutex_.unlock();
    if (std::chrono::steady_clock::now() - begin < short_call)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(await_interval);
    mutex_.lock();
    throw_loss();
  }
}

void DeviceFlights::check() {
  const std::lock_guard lock(mutex_);
  throw_loss();
}

// Work that was aborted ends, too, possibly with a failure of the device, because it has used memory of a
// lost rank. The loss is the cause.
void DeviceFlights::await(const GpuEvent& event) {
  try {
    while (!event.reached()) {
      check();
      show_waiting(event);
      std::this_thread::sleep_for(await_interval);
    }
    if (entry_ != nullptr) entry_->set_awaits(0);
  } catch (const Error&) {
    check();
    throw;
  }
  check();
}

// The work before the event waits for the oldest collective that is not complete, if this one was queued
// before the event.
void DeviceFlights::show_waiting(const GpuEvent& event) {
  if (entry_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto* const flight = oldest();
  const bool behind =
      flight != nullptr && shown_ == flight->sequence && flight->since_ns < event.recorded_ns();
  entry_->set_awaits(behind ? own_thread() : 0);
}

void DeviceFlights::watch() {
  std::unique_lock lock(mutex_);
  try {
    runtime_->use(device_);
  } catch (const Error& error) {
    fail({error.what(), ExitCode::failure});
  }
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || loss_ || oldest() != nullptr; });
    if (stopping_) return;
    lock.unlock();
    const bool go_on = stop_.sleep(look_interval);
    lock.lock();
    if (!go_on) return;
    loss_ ? library_.abort() : look();
  }
}

const DeviceFlights::Flight* DeviceFlights::oldest() const {
  return flights_.empty() ? queueing_ : &flights_.front();
}

// The registry shows the oldest collective that is not complete. A failure of the device is a loss.
void DeviceFlights::show() {
  std::optional<Flight> last;
  try {
    while (!flights_.empty() && flights_.front().end->reached()) {
      last = std::move(flights_.front());
      flights_.pop_front();
      spare_.push_back(std::move(last->end));
    }
  } catch (const Error& error) {
    fail({error.what(), ExitCode::failure});
  }
  const Flight* const shown = oldest() != nullptr ? oldest() : last ? &*last : nullptr;
  if (entry_ == nullptr || shown == nullptr) return;
  if (shown_ != shown->sequence) entry_->set_awaits(0);
  if (shown_ != shown->sequence)
    entry_->enter(shown->sequence, shown->operation, shown->name, shown->bytes, shown->since_ns);
  shown_ = shown->sequence;
  if (oldest() == nullptr) entry_->leave();
}

void DeviceFlights::look() {
  show();
  const auto* const flight = oldest();
  if (flight == nullptr || loss_) return;
  const auto waiting_in = fmt::format("{} '{}' (call {})", flight->operation, flight->name, flight->sequence);
  // Asked before a lost rank is looked for, whose loss is the better reason, because it is the cause.
  auto error = library_.error(waiting_in);
  if (const auto lost = lost_peer())
    fail({fmt::format("{}, while this rank waited in {}", *lost, waiting_in), ExitCode::peer_lost});
  else if (error)
    fail(std::move(*error));
}

}  // namespace farandole
