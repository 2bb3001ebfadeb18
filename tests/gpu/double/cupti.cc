// A test double of CUPTI's activity records. A test says which kernel a GPU runs; the double records it and
// its launch while kernels are recorded.
#include <cstdlib>
#include <cstring>
#include <cupti.h>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

std::mutex mutex;
CUpti_BuffersCallbackRequestFunc request = nullptr;
CUpti_BuffersCallbackCompleteFunc complete = nullptr;
CUpti_TimestampCallbackFunc timestamp = nullptr;
std::set<CUpti_ActivityKind> enabled;
std::vector<std::uint8_t> records;
std::deque<std::string> names;  // which records point to
std::uint32_t correlation = 0;
bool unfinished = false;
// Calls of the runtime and the driver that are recorded.
std::set<std::pair<CUpti_ActivityKind, CUpti_CallbackId>> calls;

bool fails(const char* name) {
  const char* const fault = std::getenv("CUPTI_DOUBLE_FAIL");
  return fault != nullptr && std::strcmp(fault, name) == 0;
}

std::size_t size_of(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_RUNTIME ? sizeof(CUpti_ActivityAPI) : sizeof(CUpti_ActivityKernel10);
}

CUptiResult enable_call(CUpti_ActivityKind kind, CUpti_CallbackId call, bool enable) {
  const std::lock_guard lock(mutex);
  enable ? void(calls.insert({kind, call})) : void(calls.erase({kind, call}));
  return CUPTI_SUCCESS;
}

bool records_call(CUpti_ActivityKind kind, CUpti_CallbackId call) {
  return enabled.contains(kind) || calls.contains({kind, call});
}

template <class Record>
void append(const Record& record) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&record);
  records.insert(records.end(), bytes, bytes + sizeof record);
}

}  // namespace

extern "C" {

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete) {
  request = on_request;
  complete = on_complete;
  return fails("cuptiActivityRegisterCallbacks") ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  timestamp = function;
  return fails("cuptiActivityRegisterTimestampCallback") ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

// The last kind fails, so that the earlier ones must be disabled again.
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_MARKER && fails("cuptiActivityEnable"))
    return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  const std::lock_guard lock(mutex);
  enabled.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const std::lock_guard lock(mutex);
  enabled.erase(kind);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId call, std::uint8_t enable) {
  return enable_call(CUPTI_ACTIVITY_KIND_RUNTIME, call, enable != 0);
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId call, std::uint8_t enable) {
  return enable_call(CUPTI_ACTIVITY_KIND_DRIVER, call, enable != 0);
}

// A buffer with a record of work that has not ended is only returned if that is forced.
CUptiResult cuptiActivityFlushAll(std::uint32_t flag) {
  if (fails("cuptiActivityFlushAll")) return CUPTI_ERROR_UNKNOWN;
  std::vector<std::uint8_t> all;
  {
    const std::lock_guard lock(mutex);
    if (unfinished && flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_SUCCESS;
    unfinished = false;
    all.swap(records);
  }
  if (all.empty()) return CUPTI_SUCCESS;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, most = 0;
  request(&buffer, &size, &most);
  if (buffer == nullptr || size < all.size()) return CUPTI_ERROR_OUT_OF_MEMORY;
  std::memcpy(buffer, all.data(), all.size());
  complete(nullptr, 0, buffer, size, all.size());
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  auto* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (next == buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}

// A kernel is launched now and runs for 100 ns.
void cupti_double_kernel(const char* name) {
  const std::lock_guard lock(mutex);
  if (!enabled.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return;
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.cbid = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;
  call.start = timestamp();
  call.end = call.start + 1;
  call.correlationId = ++correlation;
  if (records_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000))
    append(call);
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = call.start;
  kernel.end = call.start + 100;
  kernel.correlationId = correlation;
  kernel.streamId = 7;
  kernel.name = names.emplace_back(name).c_str();
  append(kernel);
}

// A kernel is launched that does not end.
void cupti_double_endless_kernel(const char* name) {
  cupti_double_kernel(name);
  const std::lock_guard lock(mutex);
  auto* const kernel = reinterpret_cast<CUpti_ActivityKernel10*>(&records.back() + 1) - 1;
  kernel->end = 0;
  unfinished = true;
}

// Whether calls of the runtime and the driver that ask for an event are recorded.
bool cupti_double_records_queries() {
  const std::lock_guard lock(mutex);
  return records_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020) ||
         records_call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuEventQuery);
}

int cupti_double_enabled() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(enabled.size() + calls.size());
}
}
