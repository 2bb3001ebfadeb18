// Buckets of the shared session in memory of a device: the test doubles of CUDA and NCCL, whose memory CPU
// tensors can use; and a net whose parameters are of all kinds for them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <vector>

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

// One layer computes gradients in the buckets, the other one's are copied there, and one weight has its
// columns first in memory. In some steps, the side is not used on some ranks, or on none.
struct SidedNet : torch::nn::Module {
  SidedNet() {
    torch::manual_seed(9);
    ours = register_module("ours", Linear(11, 40));
    theirs = register_module("theirs", torch::nn::Linear(40, 9));
    side = register_module("side", torch::nn::Linear(11, 9));
    theirs->weight.set_data(theirs->weight.detach().t().contiguous().t());
  }
  torch::Tensor loss(int step) {
    torch::manual_seed(100 * session->rank() + step);
    const auto x = torch::randn({6, 11});
    auto y = theirs(torch::tanh(ours(x)));
    if (step % 3 != 2 && (step % 3 == 1 || session->rank() == 0)) y = y + side(x);
    return y.square().mean();
  }
  Linear ours{nullptr};
  torch::nn::Linear theirs{nullptr}, side{nullptr};
};

inline torch::Tensor values_of(const torch::nn::Module& net) {
  std::vector<torch::Tensor> values;
  for (const auto& parameter : net.parameters()) values.push_back(parameter.detach().reshape({-1}));
  return torch::cat(values);
}

}  // namespace farandole
