#include "farandole/comm/gpu/cuda_functions.h"

#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/process/shared_library.h"

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

}  // namespace farandole
