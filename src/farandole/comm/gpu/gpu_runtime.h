// The CUDA runtime: devices, streams, events and memory. Its library is loaded when a program first needs it,
// so that one build serves nodes with and without GPUs.
// Thread safety: any thread may call this at any time. Use a stream from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "farandole/comm/communicator.h"

struct CUstream_st;  // CUDA's names for what cudaStream_t and cudaEvent_t point to
struct CUevent_st;

namespace farandole {

struct CudaFunctions;  // cuda_functions.h, which needs the CUDA Toolkit's headers

class GpuRuntime {
 public:
  struct Device {
    std::string name, uuid;  // "NVIDIA H200", "GPU-4bd1…" as nvidia-smi -L shows it
  };

  // Loads the library that the environment variable FARANDOLE_CUDA_LIBRARY names, or else the toolkit's.
  // Returns nullptr and says why if this build, the library, the driver or a device is missing.
  static std::shared_ptr<const GpuRuntime> load(std::string& why_not);

  explicit GpuRuntime(std::unique_ptr<const CudaFunctions> functions);
  ~GpuRuntime();
  const CudaFunctions& functions() const { return *functions_; }

  // All functions below throw Error if CUDA refuses; the message names the call and CUDA's reason.

  int device_count() const;  // devices that this process may use
  Device describe(int device) const;
  // "NVIDIA H200 at 0000:1b:00, direct access to GPUs 1, 2 of 3 visible GPUs", numbered as this
  // process counts them.
  std::string topology(int device) const;
  void use(int device) const;  // for this thread

  // Zeroed memory of the thread's device.
  Buffer allocate(std::size_t bytes) const;
  // Zeroed memory of the host, which the device can copy without the help of the processor.
  Buffer allocate_pinned(std::size_t bytes) const;
  // Queues a copy between memory of the host, which must be pinned, and of devices.
  void copy(void* to, const void* from, std::size_t bytes, CUstream_st* stream) const;
  void zero(void* memory, std::size_t bytes, CUstream_st* stream) const;
  void zero_now(void* memory, std::size_t bytes) const;  // for all streams; waits for the device

 private:
  std::unique_ptr<const CudaFunctions> functions_;
};

// A stream beside the default stream, which it does not wait for. Its work is started before that
// of other streams.
class GpuStream {
 public:
  explicit GpuStream(std::shared_ptr<const GpuRuntime> runtime);
  ~GpuStream();  // the queued work still runs
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  CUstream_st* handle() const { return stream_; }

 private:
  std::shared_ptr<const GpuRuntime> runtime_;
  CUstream_st* stream_ = nullptr;
};

// A mark in a stream. Other streams and the host can wait for it.
class GpuEvent {
 public:
  explicit GpuEvent(std::shared_ptr<const GpuRuntime> runtime);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(CUstream_st* stream);                          // marks the end of the work queued there so far
  std::int64_t recorded_ns() const { return recorded_ns_; }  // when record() was called last
  bool reached() const;                                      // also true if nothing was recorded; never waits
  void hold(CUstream_st* stream) const;  // work queued there from now on waits for the mark

 private:
  std::shared_ptr<const GpuRuntime> runtime_;
  CUevent_st* event_ = nullptr;
  std::int64_t recorded_ns_ = 0;
};

}  // namespace farandole
