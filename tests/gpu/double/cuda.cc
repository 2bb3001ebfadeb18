// A test double of the CUDA runtime. Memory of devices is memory of the host. A stream is a thread that runs the queued
// work in order, with random delays. Nothing but events orders the work of different streams.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>
#include <utility>

#include "gpu/double/double.h"
#include "gpu/double/streams.h"

struct CUstream_st {
  CUstream_st() : worker([this] { run(); }) {}
  ~CUstream_st() {
    push(nullptr);
    worker.join();
  }

  void push(std::function<void()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    there.notify_one();
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex);
      there.wait(lock, [this] { return !queue.empty(); });
      const auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      if (!work) return;
      gpu_double::delay();
      work();
    }
  }

  std::mutex mutex;
  std::condition_variable there;
  std::deque<std::function<void()>> queue;
  std::thread worker;
};

namespace {

struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

std::atomic<int> waits{0};

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;

// Like a real device's memory, new memory holds what nobody expects.
cudaError_t allocate(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xa5, bytes);
  return cudaSuccess;
}

std::mutex all_mutex;
std::set<CUstream_st*> all_streams;

int devices() {
  const char* const text = std::getenv("GPU_DOUBLE_DEVICES");
  return text != nullptr ? std::atoi(text) : 8;
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<Mark> mark;  // of the last cudaEventRecord
};

namespace gpu_double {

bool fails(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  const char* const fault = std::getenv("GPU_DOUBLE_FAIL");
  if (fault == nullptr) return false;
  const std::lock_guard lock(mutex);
  return name + ":" + std::to_string(++calls[name]) == fault;
}

void delay() {
  thread_local std::mt19937 random(std::random_device{}());
  if (const auto time = random() % 4 * 50; time > 0) ::usleep(static_cast<useconds_t>(time));
}

// Like cudaFree, which lets the host wait for all work of the device.
void synchronize() {
  const std::lock_guard lock(all_mutex);
  for (auto* const stream : all_streams) {
    const auto mark = std::make_shared<Mark>();
    stream->push([mark] { mark->reach(); });
    mark->wait();
  }
}

void run_on(CUstream_st* stream, std::function<void()> work) {
  stream->push(std::move(work));
}

}  // namespace gpu_double

#define FAIL_IF_ASKED(name, code) \
  if (gpu_double::fails(name)) return last = (code)

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  FAIL_IF_ASKED("cudaGetDeviceCount", cudaErrorNoDevice);
  *count = devices();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int which) {
  FAIL_IF_ASKED("cudaGetDeviceProperties", cudaErrorUnknown);
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "Test double");
  std::memset(properties->uuid.bytes, which, sizeof properties->uuid.bytes);
  properties->totalGlobalMem = std::size_t{1} << 30;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int which) {
  FAIL_IF_ASKED("cudaSetDevice", cudaErrorInvalidDevice);
  if (which < 0 || which >= devices()) return last = cudaErrorInvalidDevice;
  device = which;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  FAIL_IF_ASKED("cudaMalloc", cudaErrorMemoryAllocation);
  return allocate(memory, bytes);
}

cudaError_t cudaFree(void* memory) {
  gpu_double::synchronize();
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  FAIL_IF_ASKED("cudaHostAlloc", cudaErrorMemoryAllocation);
  return allocate(memory, bytes);
}

cudaError_t cudaFreeHost(void* memory) {
  gpu_double::synchronize();
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  FAIL_IF_ASKED("cudaMemset", cudaErrorInvalidValue);
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  FAIL_IF_ASKED("cudaMemsetAsync", cudaErrorInvalidValue);
  stream->push([=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  FAIL_IF_ASKED("cudaMemcpyAsync", cudaErrorInvalidValue);
  stream->push([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAIL_IF_ASKED("cudaDeviceGetStreamPriorityRange", cudaErrorUnknown);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  FAIL_IF_ASKED("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation);
  const std::lock_guard lock(all_mutex);
  *stream = *all_streams.insert(new CUstream_st).first;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(all_mutex);
    all_streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}

// GPU_DOUBLE_LOSE_WAIT=N leaves out the Nth wait, as a program would that forgets it; 0 leaves out all.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAIL_IF_ASKED("cudaStreamWaitEvent", cudaErrorUnknown);
  const int wait = ++waits;
  if (const char* const lost = std::getenv("GPU_DOUBLE_LOSE_WAIT"); lost != nullptr)
    if (std::atoi(lost) == 0 || std::atoi(lost) == wait) return cudaSuccess;
  if (const auto mark = event->mark; mark != nullptr) stream->push([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  FAIL_IF_ASKED("cudaEventCreateWithFlags", cudaErrorMemoryAllocation);
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAIL_IF_ASKED("cudaEventRecord", cudaErrorUnknown);
  const auto mark = std::make_shared<Mark>();
  event->mark = mark;
  stream->push([mark] { mark->reach(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAIL_IF_ASKED("cudaEventQuery", cudaErrorLaunchFailure);
  return event->mark == nullptr || event->mark->is_reached() ? cudaSuccess : cudaErrorNotReady;
}

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an injected error";
}

cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}

}  // extern "C"
