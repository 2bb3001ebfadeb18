#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cupti.h>
#include <mutex>
#include <string>

#include "farandole/base/clock.h"
#include "farandole/base/log.h"
#include "farandole/base/process/shared_library.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/timeline/gpu/cupti/activity_buffers.h"
#include "farandole/timeline/gpu/cupti/activity_reader.h"
#include "farandole/timeline/gpu/gpu_activity.h"

namespace farandole {
namespace {

struct CuptiLibrary {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime_call = nullptr;
  decltype(&cuptiActivityEnableDriverApi) enable_driver_call = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;

  // Loads the library of the major version for which this was compiled. It stays loaded until the process
  // ends. Returns why it cannot be loaded, or "". Without a driver and a device it is not asked: CUPTI 13.2
  // then crashes, in its first call or in cuptiGetResultString().
  std::string load();
};

std::string CuptiLibrary::load() {
  if (!GpuCounters::any_device())
    return "no NVIDIA driver answers (NVML, libnvidia-ml.so.1), or it has no device here";
  // libcupti.so.13 is CUPTI's own name for its version 130001. LibTorch may already have loaded it.
  SharedLibrary library("FARANDOLE_CUPTI_LIBRARY",
                        "libcupti.so." + std::to_string(CUPTI_API_VERSION / 10000));
  library.find(register_callbacks, "cuptiActivityRegisterCallbacks");
  library.find(register_timestamp, "cuptiActivityRegisterTimestampCallback");
  library.find(enable, "cuptiActivityEnable");
  library.find(disable, "cuptiActivityDisable");
  library.find(enable_runtime_call, "cuptiActivityEnableRuntimeApi");
  library.find(enable_driver_call, "cuptiActivityEnableDriverApi");
  library.find(flush_all, "cuptiActivityFlushAll");
  library.find(next_record, "cuptiActivityGetNextRecord");
  library.find(dropped, "cuptiActivityGetNumDroppedRecords");
  return library.why_not();
}

std::string describe(CUptiResult result) {
  return "error " + std::to_string(result) + " of cupti_result.h";
}

constexpr std::array kinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                              CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET,
                              CUPTI_ACTIVITY_KIND_MARKER};

class CuptiActivity final : public GpuActivity {
 public:
  CuptiActivity(Timeline& timeline, const ActivitySteps& steps, const CollectiveLaunches& collectives)
      : timeline_(timeline), steps_(steps), reader_(timeline, history_, collectives) {}

  ~CuptiActivity() override {
    if (active() != this) return;
    timeline_.tell_phases(nullptr);
    switch_to(false);
    // A buffer with a record of work that has not ended would be kept back with all that it has. The device
    // is not waited for, because it may wait for a rank that is lost.
    flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const std::lock_guard lock(mutex_);
    active() = nullptr;
  }

  // Returns why recording is not possible, or "".
  std::string begin() {
    if (auto refusal = cupti_.load(); !refusal.empty()) return refusal;
    if (active() != nullptr) return "this process already records it";
    CUptiResult result =
        cupti_.register_timestamp([]() -> std::uint64_t { return static_cast<std::uint64_t>(now_ns()); });
    if (result == CUPTI_SUCCESS) result = cupti_.register_callbacks(&buffer_wanted, &buffer_full);
    active() = this;
    if (result == CUPTI_SUCCESS) result = switch_to(true);
    // It is now known that switching on works.
    if (result == CUPTI_SUCCESS && !steps_.includes(0, 0)) switch_to(false);
    if (result != CUPTI_SUCCESS)
      active() = nullptr;
    else
      timeline_.tell_phases(&history_);
    return result == CUPTI_SUCCESS ? "" : "CUPTI says " + describe(result);
  }

  void mark_step(std::int64_t step) override {
    history_.set_step(step, now_ns());
    if (step < 0 || step == last_step_) return;
    last_step_ = step;
    const auto ordinal = steps_begun_++;
    if (asked_.exchange(false)) asked_until_ = ordinal + ActivitySteps::length;
    switch_to(ordinal < asked_until_ || steps_.includes(step, ordinal));
  }

  void record_next_steps() noexcept override { asked_ = true; }

  void flush() override { flush(0); }

 private:
  void flush(std::uint32_t flag) {
    give_all(flag);
    buffers_.wait();
    reader_.finish();
  }

  void give_all(std::uint32_t flag) {
    if (const auto result = cupti_.flush_all(flag); result != CUPTI_SUCCESS)
      log_warning("GPU activity is incomplete: CUPTI says {}", describe(result));
  }

  // CUPTI's callbacks carry no user pointer, and CUPTI serves only one client per process.
  static std::atomic<CuptiActivity*>& active() {
    static std::atomic<CuptiActivity*> instance{nullptr};
    return instance;
  }

  static void CUPTIAPI buffer_wanted(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    const std::lock_guard lock(mutex_);
    auto* const self = active().load();
    *buffer = self != nullptr ? self->buffers_.take() : nullptr;
    *size = *buffer != nullptr ? ActivityBuffers::bytes : 0;
    *most_records = 0;  // 0 means as many as fit
  }

  static void CUPTIAPI buffer_full(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) {
    const std::lock_guard lock(mutex_);
    if (auto* const self = active().load())
      self->buffers_.give({context, stream, buffer, valid});
    else
      std::free(buffer);
  }

  void read(const ActivityBuffers::Filled& filled) {
    CUpti_Activity* record = nullptr;
    while (cupti_.next_record(filled.buffer, filled.valid, &record) == CUPTI_SUCCESS) reader_.read(*record);
    std::size_t lost = 0;
    if (cupti_.dropped(filled.context, filled.stream, &lost) == CUPTI_SUCCESS && lost > 0)
      log_warning("{} GPU events were lost because the driver's buffers were full", lost);
  }

  CUptiResult switch_to(bool on) {
    if (on == on_) return CUPTI_SUCCESS;
    for (const auto kind : kinds) {
      const auto result = on ? cupti_.enable(kind) : cupti_.disable(kind);
      if (result == CUPTI_SUCCESS || !on) continue;
      for (const auto enabled : kinds) cupti_.disable(enabled);
      return result;
    }
    for (const auto call : launching_calls_of_runtime) cupti_.enable_runtime_call(call, on);
    for (const auto call : launching_calls_of_driver) cupti_.enable_driver_call(call, on);
    for (const auto& call : waiting_calls)
      (call.of_driver ? cupti_.enable_driver_call : cupti_.enable_runtime_call)(call.id, on);
    on_ = on;
    if (!on) buffers_.flush_soon();
    return CUPTI_SUCCESS;
  }

  CuptiLibrary cupti_;
  Timeline& timeline_;
  const ActivitySteps steps_;
  LaunchHistory history_;
  // Protects active(), because a thread of CUPTI may give a buffer while this object ends.
  static inline std::mutex mutex_;
  ActivityReader reader_;  // of the thread of buffers_, and of flush() while that has nothing to do
  bool on_ = false;
  std::int64_t last_step_ = -1, steps_begun_ = 0, asked_until_ = 0;
  std::atomic<bool> asked_{false};
  ActivityBuffers buffers_{[this](const auto& filled) { read(filled); }, [this] { give_all(0); }};
};

}  // namespace

std::unique_ptr<GpuActivity> GpuActivity::start(Timeline& timeline, const ActivitySteps& steps,
                                                const CollectiveLaunches& collectives, std::string& why_not) {
  if (steps.off() || !timeline.enabled()) {
    why_not = "it is switched off";
    return nullptr;
  }
  auto activity = std::make_unique<CuptiActivity>(timeline, steps, collectives);
  why_not = activity->begin();
  if (!why_not.empty()) return nullptr;
  timeline.set_metadata("gpu_activity", steps.describe());
  return activity;
}

}  // namespace farandole
