// The functions of the CUDA runtime that we call, and the one place that converts its codes to exceptions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string>
#include <string_view>

namespace farandole {

// Members have the types of the toolkit's declarations, so a call with wrong arguments does not compile.
struct CudaFunctions {
  decltype(&cudaGetDeviceCount) get_device_count;
  decltype(&cudaGetDeviceProperties) get_device_properties;
  decltype(&cudaDeviceCanAccessPeer) device_can_access_peer;
  decltype(&cudaSetDevice) set_device;
  decltype(&cudaMalloc) malloc;
  decltype(&cudaFree) free;
  decltype(&cudaDeviceSynchronize) device_synchronize;
  decltype(&cudaHostAlloc) host_alloc;
  decltype(&cudaFreeHost) free_host;
  decltype(&cudaHostRegister) host_register;
  decltype(&cudaHostUnregister) host_unregister;
  decltype(&cudaHostGetDevicePointer) host_get_device_pointer;
  decltype(&cudaIpcGetMemHandle) ipc_get_mem_handle;
  decltype(&cudaIpcOpenMemHandle) ipc_open_mem_handle;
  decltype(&cudaIpcCloseMemHandle) ipc_close_mem_handle;
  decltype(&cudaGetDriverEntryPointByVersion) get_driver_entry_point;
  decltype(&cudaMemset) memset;
  decltype(&cudaMemsetAsync) memset_async;
  decltype(&cudaMemcpyAsync) memcpy_async;
  decltype(&cudaDeviceGetStreamPriorityRange) get_stream_priority_range;
  decltype(&cudaStreamCreateWithPriority) stream_create_with_priority;
  decltype(&cudaStreamDestroy) stream_destroy;
  decltype(&cudaStreamWaitEvent) stream_wait_event;
  decltype(&cudaEventCreateWithFlags) event_create_with_flags;
  decltype(&cudaEventDestroy) event_destroy;
  decltype(&cudaEventRecord) event_record;
  decltype(&cudaEventQuery) event_query;
  decltype(&cudaLibraryLoadData) library_load_data;
  decltype(&cudaLibraryGetKernel) library_get_kernel;
  decltype(&cudaLaunchKernel) launch_kernel;
  decltype(&cudaGetErrorString) get_error_string;
  decltype(&cudaGetLastError) get_last_error;

  // Throws: Error with CUDA's own text if `code` is not cudaSuccess.
  void check(cudaError_t code, std::string_view call) const;
};

// Returns why the functions cannot be loaded, or "". The library stays loaded until the process ends.
std::string load(CudaFunctions& functions);

}  // namespace farandole
