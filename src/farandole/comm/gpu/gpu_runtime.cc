#include "farandole/comm/gpu/gpu_runtime.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/shared_library.h"
#include "farandole/comm/gpu/cuda_functions.h"

// Some toolkits rename a function by a macro because its structures have changed. It is expanded first.
#define FARANDOLE_TEXT(name) #name
#define FARANDOLE_SYMBOL(name) FARANDOLE_TEXT(name)

namespace farandole {

std::string load(CudaFunctions& functions) {
  SharedLibrary library("FARANDOLE_CUDA_LIBRARY", fmt::format("libcudart.so.{}", CUDART_VERSION / 1000));
  library.find(functions.get_device_count, "cudaGetDeviceCount");
  library.find(functions.get_device_properties, FARANDOLE_SYMBOL(cudaGetDeviceProperties));
  library.find(functions.device_can_access_peer, "cudaDeviceCanAccessPeer");
  library.find(functions.set_device, "cudaSetDevice");
  library.find(functions.malloc, "cudaMalloc");
  library.find(functions.free, "cudaFree");
  library.find(functions.device_synchronize, "cudaDeviceSynchronize");
  library.find(functions.host_alloc, "cudaHostAlloc");
  library.find(functions.free_host, "cudaFreeHost");
  library.find(functions.host_register, "cudaHostRegister");
  library.find(functions.host_unregister, "cudaHostUnregister");
  library.find(functions.host_get_device_pointer, "cudaHostGetDevicePointer");
  library.find(functions.ipc_get_mem_handle, "cudaIpcGetMemHandle");
  library.find(functions.ipc_open_mem_handle, "cudaIpcOpenMemHandle");
  library.find(functions.ipc_close_mem_handle, "cudaIpcCloseMemHandle");
  library.find(functions.get_driver_entry_point, "cudaGetDriverEntryPointByVersion");
  library.find(functions.memset, "cudaMemset");
  library.find(functions.memset_async, "cudaMemsetAsync");
  library.find(functions.memcpy_async, "cudaMemcpyAsync");
  library.find(functions.get_stream_priority_range, "cudaDeviceGetStreamPriorityRange");
  library.find(functions.stream_create_with_priority, "cudaStreamCreateWithPriority");
  library.find(functions.stream_destroy, "cudaStreamDestroy");
  library.find(functions.stream_wait_event, "cudaStreamWaitEvent");
  library.find(functions.event_create_with_flags, "cudaEventCreateWithFlags");
  library.find(functions.event_destroy, "cudaEventDestroy");
  library.find(functions.event_record, "cudaEventRecord");
  library.find(functions.event_query, "cudaEventQuery");
  library.find(functions.library_load_data, "cudaLibraryLoadData");
  library.find(functions.library_get_kernel, "cudaLibraryGetKernel");
  library.find(functions.launch_kernel, "cudaLaunchKernel");
  library.find(functions.get_error_string, "cudaGetErrorString");
  library.find(functions.get_last_error, "cudaGetLastError");
  return library.why_not();
}

void CudaFunctions::check(cudaError_t code, std::string_view call) const {
  if (code == cudaSuccess) return;
  get_last_error();  // an error that is not sticky must not appear in a later call
  throw Error(fmt::format("{}: {}", call, get_error_string(code)));
}

std::shared_ptr<const GpuRuntime> GpuRuntime::load(std::string& why_not) {
  auto functions = std::make_unique<CudaFunctions>();
  why_not = farandole::load(*functions);
  if (!why_not.empty()) return nullptr;
  int count = 0;
  if (const auto code = functions->get_device_count(&count); code != cudaSuccess) {
    why_not = fmt::format("CUDA finds no GPU ({})", functions->get_error_string(code));
    functions->get_last_error();
    return nullptr;
  }
  if (count == 0) {
    why_not = "no GPU is visible to this process; see CUDA_VISIBLE_DEVICES";
    return nullptr;
  }
  return std::make_shared<const GpuRuntime>(std::move(functions));
}

GpuRuntime::GpuRuntime(std::unique_ptr<const CudaFunctions> functions) : functions_(std::move(functions)) {}

GpuRuntime::~GpuRuntime() = default;

int GpuRuntime::device_count() const {
  int count = 0;
  functions_->check(functions_->get_device_count(&count), "cudaGetDeviceCount");
  return count;
}

GpuRuntime::Device GpuRuntime::describe(int device) const {
  cudaDeviceProp properties{};
  functions_->check(functions_->get_device_properties(&properties, device), "cudaGetDeviceProperties");
  Device result{properties.name, "GPU-"};
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) result.uuid += '-';
    result.uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return result;
}

std::string GpuRuntime::topology(int device) const {
  cudaDeviceProp properties{};
  functions_->check(functions_->get_device_properties(&properties, device), "cudaGetDeviceProperties");
  std::vector<int> reached;
  const int visible = device_count();
  for (int other = 0; other < visible; ++other) {
    int can = 0;
    if (other != device)
      functions_->check(functions_->device_can_access_peer(&can, device, other), "cudaDeviceCanAccessPeer");
    if (can != 0) reached.push_back(other);
  }
  auto text = fmt::format("{} at {:04x}:{:02x}:{:02x}", properties.name, properties.pciDomainID,
                          properties.pciBusID, properties.pciDeviceID);
  if (visible == 1) return text + ", no other visible GPU";
  return fmt::format("{}, direct access to {} of {} visible GPUs", text,
                     reached.empty()
                         ? "none"
                         : fmt::format("GPU{} {}", reached.size() == 1 ? "" : "s", fmt::join(reached, ", ")),
                     visible);
}

void GpuRuntime::use(int device) const {
  functions_->check(functions_->set_device(device), "cudaSetDevice");
}

Buffer GpuRuntime::allocate(std::size_t bytes) const {
  void* memory = nullptr;
  functions_->check(functions_->malloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  Buffer buffer(static_cast<std::byte*>(memory), [free = functions_->free](std::byte* data) { free(data); });
  zero_now(memory, bytes);
  return buffer;
}

// cudaMemset may return before it has written, and other streams do not wait for it.
void GpuRuntime::zero_now(void* memory, std::size_t bytes) const {
  functions_->check(functions_->memset(memory, 0, bytes), "cudaMemset");
  functions_->check(functions_->device_synchronize(), "cudaDeviceSynchronize");
}

Buffer GpuRuntime::allocate_pinned(std::size_t bytes) const {
  void* memory = nullptr;
  functions_->check(functions_->host_alloc(&memory, std::max<std::size_t>(bytes, 1), cudaHostAllocDefault),
                    "cudaHostAlloc");
  auto* const data = static_cast<std::byte*>(memory);
  std::fill_n(data, bytes, std::byte{0});
  return Buffer(data, [free = functions_->free_host](std::byte* to_free) { free(to_free); });
}

void GpuRuntime::copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) const {
  functions_->check(functions_->memcpy_async(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void GpuRuntime::zero(void* memory, std::size_t bytes, CUstream_st* stream) const {
  functions_->check(functions_->memset_async(memory, 0, bytes, stream), "cudaMemsetAsync");
}

GpuStream::GpuStream(std::shared_ptr<const GpuRuntime> runtime) : runtime_(std::move(runtime)) {
  const auto& cuda = runtime_->functions();
  int least = 0, greatest = 0;
  cuda.check(cuda.get_stream_priority_range(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cuda.check(cuda.stream_create_with_priority(&stream_, cudaStreamNonBlocking, greatest),
             "cudaStreamCreateWithPriority");
}

GpuStream::~GpuStream() {
  runtime_->functions().stream_destroy(stream_);
}

GpuEvent::GpuEvent(std::shared_ptr<const GpuRuntime> runtime) : runtime_(std::move(runtime)) {
  const auto& cuda = runtime_->functions();
  cuda.check(cuda.event_create_with_flags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

GpuEvent::~GpuEvent() {
  runtime_->functions().event_destroy(event_);
}

void GpuEvent::record(CUstream_st* stream) {
  const auto& cuda = runtime_->functions();
  cuda.check(cuda.event_record(event_, stream), "cudaEventRecord");
  recorded_ns_ = now_ns();
}

bool GpuEvent::reached() const {
  const auto& cuda = runtime_->functions();
  const auto code = cuda.event_query(event_);
  if (code == cudaErrorNotReady) {
    cuda.get_last_error();  // or else the next one who asks for an error of a kernel gets this answer
    return false;
  }
  cuda.check(code, "cudaEventQuery");
  return true;
}

void GpuEvent::hold(CUstream_st* stream) const {
  const auto& cuda = runtime_->functions();
  cuda.check(cuda.stream_wait_event(stream, event_, 0), "cudaStreamWaitEvent");
}

}  // namespace farandole
