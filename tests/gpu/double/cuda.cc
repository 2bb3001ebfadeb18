// A test double of the CUDA runtime. Memory of devices is memory of the host. A stream is a thread that runs
// the queued work in order, with random delays. Nothing but events orders the work of different streams.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <deque>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "gpu/double/double.h"
#include "gpu/double/kernels.h"
#include "gpu/double/shared_order.h"
#include "gpu/double/streams.h"

namespace {

struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  gpu_double::Clock clock;                 // when it was recorded
  gpu_double::SharedClock shared_clock{};  // when it was reached

  void reach(const gpu_double::SharedClock& now) {
    const std::lock_guard lock(mutex);
    shared_clock = now;
    reached = true;
    changed.notify_all();
  }
  void wait(gpu_double::SharedClock& waiting) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
    gpu_double::join(waiting, shared_clock);
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

struct Pause {
  std::mutex mutex;
  std::condition_variable changed;
  bool on = false;

  void set(bool pause) {
    const std::lock_guard lock(mutex);
    on = pause;
    changed.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !on; });
  }
};
Pause standstill;

std::mutex clocks_mutex;  // of all streams
int streams_so_far = 0;

}  // namespace

// Without a thread of its own, it runs work on the thread that queues it.
struct CUstream_st {
  enum class Runs { itself, on_caller };
  explicit CUstream_st(Runs runs) {
    const std::lock_guard lock(clocks_mutex);
    number = ++streams_so_far;
    if (runs == Runs::itself) worker = std::thread([this] { run(); });
  }
  ~CUstream_st() {
    if (!worker.joinable()) return;
    push(nullptr);
    worker.join();
  }

  // A place in the order of all work: after this stream's earlier work and after what the host
  // has waited for.
  gpu_double::Clock next() {
    const std::lock_guard lock(clocks_mutex);
    gpu_double::join(clock, gpu_double::of_host());
    ++clock[number];
    return clock;
  }
  void follow(const gpu_double::Clock& other) {
    const std::lock_guard lock(clocks_mutex);
    gpu_double::join(clock, other);
  }

  void push(std::function<void()> work) {
    if (work)
      work = [this, work = std::move(work), known = gpu_double::shared_of_host()] {
        gpu_double::join(shared_clock, known);
        ++shared_clock[gpu_double::shared_place(number)];
        work();
      };
    if (!worker.joinable()) return work();
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
      standstill.pass();
      work();
    }
  }

  int number = 0;
  gpu_double::Clock clock;
  gpu_double::SharedClock shared_clock{};  // only the thread that runs the work uses it
  std::mutex mutex;
  std::condition_variable there;
  std::deque<std::function<void()>> queue;
  std::thread worker;
};

namespace {

std::atomic<int> waits{0}, launches{0};

// GPU_DOUBLE_LOSE_WAIT=N leaves out the Nth wait, as a program would that forgets it; 0 leaves out all.
bool loses_wait() {
  const int wait = ++waits;
  const char* const lost = std::getenv("GPU_DOUBLE_LOSE_WAIT");
  return lost != nullptr && (std::atoi(lost) == 0 || std::atoi(lost) == wait);
}

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;

std::mutex all_mutex;
std::set<CUstream_st*> all_streams;
CUstream_st* default_stream = nullptr;  // other streams do not wait for it

// The numbers of the machine's devices that this process sees.
std::vector<int> visible() {
  const char *const count = std::getenv("GPU_DOUBLE_DEVICES"), *const chosen =
                                                                   std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> all(static_cast<std::size_t>(count != nullptr ? std::atoi(count) : 8));
  std::iota(all.begin(), all.end(), 0);
  if (chosen == nullptr) return all;
  std::vector<int> seen;
  std::istringstream numbers(chosen);
  for (std::string number; std::getline(numbers, number, ',');) seen.push_back(std::atoi(number.c_str()));
  return seen;
}

int devices() {
  return static_cast<int>(visible().size());
}

}  // namespace

namespace {

// Device memory that other processes can map: a file in memory.
struct Mapping {
  int file;  // -1: of another process
  std::size_t bytes;
};
std::mutex mappings_mutex;
std::map<void*, Mapping> mappings;

// As with the real one, only memory that fills its pages alone can be shared by itself.
bool is_whole(std::size_t bytes) {
  return bytes > 0 && bytes % (std::size_t{2} << 20) == 0;
}

void* map_file(int file, std::size_t bytes, bool own) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  struct stat status {};
  if (memory == MAP_FAILED || ::fstat(file, &status) != 0) return nullptr;
  const std::lock_guard lock(mappings_mutex);
  mappings[memory] = {own ? file : -1, bytes};
  gpu_double::know_shared(memory, bytes, status.st_ino, 0);
  return memory;
}

void* map_new(std::size_t bytes) {
  const int file = ::memfd_create("device", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  return map_file(file, bytes, true);
}

bool unmap(void* memory) {
  const std::lock_guard lock(mappings_mutex);
  const auto found = mappings.find(memory);
  if (found == mappings.end()) return false;
  gpu_double::forget_shared(memory);
  ::munmap(memory, found->second.bytes);
  if (found->second.file >= 0) ::close(found->second.file);
  mappings.erase(found);
  return true;
}

struct IpcHandle {
  std::int32_t pid, file;
  std::uint64_t bytes;
};

// The file and the place in it of memory that another process may have mapped, from the list of
// this one's mappings.
bool find_file(const void* memory, std::uint64_t* file, std::uint64_t* offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string mode, of_device;
    fields >> std::hex >> begin >> dash >> end >> mode >> *offset >> of_device >> std::dec >> *file;
    if (address < begin || address >= end) continue;
    *offset += address - begin;
    return *file != 0;
  }
  return false;
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<Mark> mark;  // of the last cudaEventRecord
};

namespace gpu_double {

std::mutex counts_mutex;
std::map<std::string, int> counts;  // of all calls

bool fails(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  {
    const std::lock_guard lock(counts_mutex);
    ++counts[name];
  }
  const char *const fault = std::getenv("GPU_DOUBLE_FAIL"), *const death = std::getenv("GPU_DOUBLE_DIE");
  if (fault == nullptr && death == nullptr) return false;
  const std::lock_guard lock(mutex);
  const auto call = name + ":" + std::to_string(++calls[name]);
  if (death != nullptr && call == death) std::raise(SIGKILL);
  return fault != nullptr && call == fault;
}

void delay() {
  thread_local std::mt19937 random(std::random_device{}());
  if (const auto time = random() % 4 * 50; time > 0) ::usleep(static_cast<useconds_t>(time));
}

void run_on(CUstream_st* stream, std::vector<Access> accesses, std::function<void(const AddAccess&)> work) {
  const auto clock = stream->next();
  for (const auto& access : accesses) note(stream->number, clock, access);
  stream->push([work = std::move(work), accesses = std::move(accesses), clock, stream] {
    for (const auto& access : accesses) note_shared(stream->number, stream->shared_clock, access);
    work([&](const Access& access) {
      note(stream->number, clock, access);
      note_shared(stream->number, stream->shared_clock, access);
    });
  });
}

void* allocate(std::size_t bytes) {
  void* const memory = is_whole(bytes) ? map_new(bytes) : std::malloc(bytes);
  std::memset(memory, 0xa5, bytes);
  note_allocation(memory, bytes);
  return memory;
}

void release(void* memory) {
  note_free(memory);
  if (!unmap(memory)) std::free(memory);
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
  const int number = visible().at(static_cast<std::size_t>(which));
  *properties = cudaDeviceProp{};
  std::strcpy(properties->name, "Test double");
  std::memset(properties->uuid.bytes, number, sizeof properties->uuid.bytes);
  properties->totalGlobalMem = std::size_t{1} << 30;
  properties->pciBusID = 0x1b + number;
  return cudaSuccess;
}

// Neighbours reach each other.
cudaError_t cudaDeviceCanAccessPeer(int* can, int which, int other) {
  FAIL_IF_ASKED("cudaDeviceCanAccessPeer", cudaErrorInvalidDevice);
  *can = which / 2 == other / 2;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int which) {
  FAIL_IF_ASKED("cudaSetDevice", cudaErrorInvalidDevice);
  if (which < 0 || which >= devices()) return last = cudaErrorInvalidDevice;
  device = which;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* which) {
  *which = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  FAIL_IF_ASKED("cudaDeviceSynchronize", cudaErrorLaunchFailure);
  const std::lock_guard lock(all_mutex);
  for (auto* const stream : all_streams) {
    const auto mark = std::make_shared<Mark>();
    mark->clock = stream->next();
    stream->push([mark, stream] { mark->reach(stream->shared_clock); });
    mark->wait(gpu_double::shared_of_host());
    gpu_double::join(gpu_double::of_host(), mark->clock);
  }
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  FAIL_IF_ASKED("cudaMalloc", cudaErrorMemoryAllocation);
  *memory = gpu_double::allocate(bytes);
  return cudaSuccess;
}

// As the real one, it lets the host wait for all work of the device.
cudaError_t cudaFree(void* memory) {
  cudaDeviceSynchronize();
  gpu_double::release(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  FAIL_IF_ASKED("cudaHostAlloc", cudaErrorMemoryAllocation);
  *memory = gpu_double::allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  FAIL_IF_ASKED("cudaHostRegister", cudaErrorInvalidValue);
  std::uint64_t file = 0, offset = 0;
  if (find_file(memory, &file, &offset)) gpu_double::know_shared(memory, bytes, file, offset);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  cudaDeviceSynchronize();
  gpu_double::forget_shared(memory);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** there, void* memory, unsigned) {
  FAIL_IF_ASKED("cudaHostGetDevicePointer", cudaErrorInvalidValue);
  *there = memory;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  FAIL_IF_ASKED("cudaIpcGetMemHandle", cudaErrorInvalidValue);
  const std::lock_guard lock(mappings_mutex);
  const auto found = mappings.find(memory);
  if (found == mappings.end() || found->second.file < 0) return last = cudaErrorInvalidValue;
  const IpcHandle own{::getpid(), found->second.file, found->second.bytes};
  std::memcpy(handle, &own, sizeof own);
  return cudaSuccess;
}

// The real one refuses memory of the same process.
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  FAIL_IF_ASKED("cudaIpcOpenMemHandle", cudaErrorMapBufferObjectFailed);
  IpcHandle there{};
  std::memcpy(&there, &handle, sizeof there);
  if (there.pid == ::getpid()) return last = cudaErrorDeviceUninitialized;
  const auto path = "/proc/" + std::to_string(there.pid) + "/fd/" + std::to_string(there.file);
  const int file = ::open(path.c_str(), O_RDWR);
  *memory = file < 0 ? nullptr : map_file(file, there.bytes, false);
  if (file >= 0) ::close(file);
  return *memory != nullptr ? cudaSuccess : last = cudaErrorMapBufferObjectFailed;
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  cudaDeviceSynchronize();
  return unmap(memory) ? cudaSuccess : last = cudaErrorInvalidValue;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  FAIL_IF_ASKED("cudaGetDriverEntryPointByVersion", cudaErrorInvalidValue);
  const std::string wanted = name;
  *function = wanted == "cuStreamWriteValue32"  ? reinterpret_cast<void*>(&cuStreamWriteValue32)
              : wanted == "cuStreamWaitValue32" ? reinterpret_cast<void*>(&cuStreamWaitValue32)
                                                : nullptr;
  if (std::getenv("GPU_DOUBLE_OLD_DRIVER") != nullptr) *function = nullptr;
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned) {
  if (gpu_double::fails("cuStreamWriteValue32")) return CUDA_ERROR_NOT_SUPPORTED;
  stream->push([=] {
    auto* const counter = reinterpret_cast<std::uint32_t*>(at);
    gpu_double::note_written(counter, value, stream->shared_clock);
    gpu_double::note_shared(stream->number, stream->shared_clock, {counter, sizeof value, true});
    std::atomic_ref(*counter).store(value);
  });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned how) {
  if (gpu_double::fails("cuStreamWaitValue32") || how != CU_STREAM_WAIT_VALUE_GEQ)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (loses_wait()) return CUDA_SUCCESS;
  stream->push([=] {
    auto* const counter = reinterpret_cast<std::uint32_t*>(at);
    while (static_cast<std::int32_t>(std::atomic_ref(*counter).load() - value) < 0) std::this_thread::yield();
    gpu_double::join_written(counter, value, stream->shared_clock);
  });
  return CUDA_SUCCESS;
}

// Of memory of the device, the real one may return before it has written.
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  FAIL_IF_ASKED("cudaMemset", cudaErrorInvalidValue);
  {
    const std::lock_guard lock(all_mutex);
    if (default_stream == nullptr)
      default_stream = *all_streams.insert(new CUstream_st(CUstream_st::Runs::itself)).first;
  }
  return cudaMemsetAsync(memory, value, bytes, default_stream);
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  FAIL_IF_ASKED("cudaMemsetAsync", cudaErrorInvalidValue);
  gpu_double::run_on(stream, {{memory, bytes, true}},
                     [=](const auto&) { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  FAIL_IF_ASKED("cudaMemcpyAsync", cudaErrorInvalidValue);
  gpu_double::run_on(stream, {{from, bytes, false}, {to, bytes, true}},
                     [=](const auto&) { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  FAIL_IF_ASKED("cudaDeviceGetStreamPriorityRange", cudaErrorUnknown);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

// All streams that we create are for communication and copies, so they come before those that compute.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  FAIL_IF_ASKED("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation);
  if (flags != cudaStreamNonBlocking || priority != -5) return last = cudaErrorInvalidValue;
  const std::lock_guard lock(all_mutex);
  *stream = *all_streams.insert(new CUstream_st(CUstream_st::Runs::itself)).first;
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

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAIL_IF_ASKED("cudaStreamWaitEvent", cudaErrorUnknown);
  if (loses_wait()) return cudaSuccess;
  const auto mark = event->mark;
  if (mark == nullptr) return cudaSuccess;
  stream->follow(mark->clock);
  stream->push([mark, stream] { mark->wait(stream->shared_clock); });
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
  mark->clock = stream->next();
  event->mark = mark;
  stream->push([mark, stream] { mark->reach(stream->shared_clock); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAIL_IF_ASKED("cudaEventQuery", cudaErrorLaunchFailure);
  if (event->mark == nullptr) return cudaSuccess;
  if (!event->mark->is_reached()) return last = cudaErrorNotReady;
  event->mark->wait(gpu_double::shared_of_host());
  gpu_double::join(gpu_double::of_host(), event->mark->clock);
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  FAIL_IF_ASKED("cudaLibraryLoadData", cudaErrorNoKernelImageForDevice);
  std::uint32_t magic = 0;
  std::memcpy(&magic, code, sizeof magic);
  if (magic != 0xba55ed50) return last = cudaErrorInvalidKernelImage;  // of nvcc's fatbin
  *library = reinterpret_cast<cudaLibrary_t>(&launches);
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  FAIL_IF_ASKED("cudaLibraryGetKernel", cudaErrorSymbolNotFound);
  const auto found = gpu_double::find_kernel(name);
  if (found == nullptr) return last = cudaErrorSymbolNotFound;
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t stream) {
  if (blocks.x == 0 || threads.x == 0 || threads.x > 1024) return last = cudaErrorInvalidConfiguration;
  auto launch = reinterpret_cast<gpu_double::Kernel>(const_cast<void*>(kernel))(blocks, threads, arguments);
  const bool loads_only = std::ranges::all_of(
      launch.accesses, [](const gpu_double::Access& access) { return access.bytes == 0; });
  if (loads_only) return cudaSuccess;
  FAIL_IF_ASKED("cudaLaunchKernel", cudaErrorLaunchFailure);
  ++launches;
  gpu_double::run_on(stream, std::move(launch.accesses), std::move(launch.work));
  return cudaSuccess;
}

CUstream_st* gpu_double_host_stream() {
  static CUstream_st stream(CUstream_st::Runs::on_caller);
  return &stream;
}

void gpu_double_pause(bool on) {
  standstill.set(on);
}

int gpu_double_launches() {
  return launches;
}

int gpu_double_calls(const char* name) {
  const std::lock_guard lock(gpu_double::counts_mutex);
  return gpu_double::counts[name];
}

int gpu_double_waits() {
  return waits;
}

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an injected error";
}

cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}

}  // extern "C"
