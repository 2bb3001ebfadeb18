// Buckets of the shared session in memory of a device: the test doubles of CUDA and NCCL, whose memory CPU
// tensors can use.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/session_internals.h"

namespace farandole {

// While it exists, new optimizers of the session have buckets on the double.
class WithDevice {
 public:
  explicit WithDevice(bool shared = false) {
    ::setenv("FARANDOLE_CUDA_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
    ::setenv("FARANDOLE_NCCL_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
    std::string why_not;
    const auto runtime = GpuRuntime::load(why_not);
    if (runtime == nullptr) throw Error(why_not);
    void* const library = ::dlopen(FARANDOLE_GPU_DOUBLE, RTLD_NOW);
    stream_of_host = reinterpret_cast<CUstream_st* (*)()>(::dlsym(library, "gpu_double_host_stream"));
    races = reinterpret_cast<int (*)()>(::dlsym(library, "gpu_double_races"));
    session->internals().gpu = GpuOfRank{runtime, shared ? 0 : session->rank(), stream_of_host, shared};
  }
  ~WithDevice() {
    session->internals().gpu.reset();
    EXPECT_EQ(races(), 0);
  }

 private:
  CUstream_st* (*stream_of_host)() = nullptr;  // On which LibTorch's work on CPU tensors runs.
  int (*races)() = nullptr;
};

}  // namespace farandole
