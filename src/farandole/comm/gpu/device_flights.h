// Looks after the collectives that a communicator has queued on GPUs. While collectives are queued, a thread
// checks them several times per second. It keeps the registry of collectives in flight up to date, so that
// the watchdog reports a collective that lasts too long as it reports those of CPUs. If a rank of this node
// is lost or the library reports an error, it aborts the communicator. The work that waits on the device for
// the lost rank then ends. Every later call throws the reason instead of waiting forever.
// Thread safety: any thread may call this at any time. "With the lock" means: while the caller holds mutex().
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/gpu/device_communicator.h"

namespace farandole {

// How long a communicator whose collectives are complete waits for the other ranks at its end. One of them
// may have ended with an error, and then never comes there.
constexpr auto wait_for_others = std::chrono::seconds(1);

struct DeviceLoss {
  std::string message;
  ExitCode code = ExitCode::failure;
};

class DeviceFlights {
 public:
  // What the communicator does. Called with the lock, possibly by the thread.
  struct Library {
    // An error that has come up since the last call. `waiting_in` says in what this rank waits.
    std::function<std::optional<DeviceLoss>(const std::string& waiting_in)> error;
    // Ends what waits on the device for other ranks. After a loss it is called again and again.
    std::function<void()> abort;
  };

  DeviceFlights(std::shared_ptr<const GpuRuntime> runtime, int device, std::mutex& mutex,
                std::span<const DevicePeer> peers, int rank, const DeviceCommunicatorOptions& options,
                Library library);
  ~DeviceFlights();
  DeviceFlights(const DeviceFlights&) = delete;
  DeviceFlights& operator=(const DeviceFlights&) = delete;

  // Calls work(), which queues a collective on the stream. `operation` is a literal. The registry shows the
  // collective from now on, because work() itself may have to wait for other ranks.
  // Throws: as check(), and what `work` throws.
  void queue(const char* operation, std::string_view name, std::size_t bytes, CUstream_st* stream,
             const std::function<void()>& work);
  // The start of the library counts as the first collective. With the lock.
  void begin_start(const char* library);
  void end_start();
  // Returns when in_progress() returns false: the library may wait for other ranks in the call `waiting_in`.
  // With the lock, which is free in between, so that the thread can look after the collective meanwhile.
  // Throws: Error with ExitCode::peer_lost if a rank is lost; as check().
  void await_call(std::string_view waiting_in, const std::function<bool()>& in_progress);

  void check();
  void await(const GpuEvent& event);
  void throw_loss() const;                       // if there was one; with the lock
  void fail(DeviceLoss loss);                    // aborts; with the lock
  std::optional<std::string> lost_peer() const;  // "rank 3 (pid 123) was lost, killed by SIGKILL"
  // Ends the thread. Returns whether all collectives are complete and there was no loss.
  bool stop();
  bool all_reached() const;  // after stop()

 private:
  struct Flight {
    std::uint32_t sequence = 0;
    const char* operation = "";
    std::string name;
    std::size_t bytes = 0;
    std::int64_t since_ns = 0;
    std::unique_ptr<GpuEvent> end;
  };

  void watch();
  void look();
  void show();
  void show_waiting(const GpuEvent& event);
  const Flight* oldest() const;

  const std::shared_ptr<const GpuRuntime> runtime_;
  const int device_;
  const PeerWatch peers_;
  const std::shared_ptr<CollectiveEntry> entry_;  // null without a registry; written into with the lock
  CollectiveLaunches* const launches_;
  const Library library_;

  std::mutex& mutex_;  // for what follows and for all calls of the library
  std::condition_variable work_;
  bool stopping_ = false;
  std::uint32_t sequence_ = 0;
  std::deque<Flight> flights_;        // not known to be complete, oldest first
  const Flight* queueing_ = nullptr;  // the one whose work() is running
  std::vector<std::unique_ptr<GpuEvent>> spare_;
  std::optional<DeviceLoss> loss_;
  std::optional<std::uint32_t> shown_;  // sequence in the registry
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole
