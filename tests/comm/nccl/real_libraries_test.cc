#include <dlfcn.h>
#include <gtest/gtest.h>
#include <thread>

#include "comm/gpu_world.h"

#include "farandole/comm/gpu/cuda_functions.h"
#include "farandole/comm/nccl/nccl_communicator.h"
#include "farandole/comm/nccl/nccl_functions.h"

namespace farandole {
namespace {

// The doubles have only the functions that we call, so they cannot show that the real libraries have them.
TEST(RealLibraries, HaveTheFunctionsThatWeCall) {
  const auto path = std::string("libcudart.so.") + std::to_string(CUDART_VERSION / 1000);
  if (::dlopen(path.c_str(), RTLD_NOW) == nullptr || ::dlopen("libnccl.so.2", RTLD_NOW) == nullptr)
    GTEST_SKIP() << "the libraries of CUDA and NCCL are not installed: " << ::dlerror();
  CudaFunctions cuda{};
  EXPECT_EQ(load(cuda), "");
  NcclFunctions nccl{};
  ASSERT_EQ(load(nccl), "");
  int version = 0;
  EXPECT_EQ(nccl.get_version(&version), ncclSuccess);
  EXPECT_GE(version, NCCL_VERSION_CODE);
  EXPECT_TRUE(nccl_version().starts_with("2."));
}

// A collective of one rank without anything of ours. tests/gpu/run asks it whether a tool can look at
// NCCL at all.
void reduce_with_nccl_alone() {
  CudaFunctions cuda{};
  NcclFunctions nccl{};
  ASSERT_EQ(load(cuda), "");
  ASSERT_EQ(load(nccl), "");
  ASSERT_EQ(cuda.set_device(0), cudaSuccess);
  void* memory = nullptr;
  ASSERT_EQ(cuda.malloc(&memory, sizeof(float)), cudaSuccess);
  ncclUniqueId id{};
  ASSERT_EQ(nccl.get_unique_id(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto await = [&](ncclResult_t result) {
    while (result == ncclInProgress) {
      std::this_thread::yield();
      ASSERT_EQ(nccl.comm_get_async_error(comm, &result), ncclSuccess);
    }
    ASSERT_EQ(result, ncclSuccess);
  };
  await(nccl.comm_init_rank_config(&comm, 1, id, 0, &config));
  cudaStream_t stream = nullptr;
  int least = 0, greatest = 0;
  ASSERT_EQ(cuda.get_stream_priority_range(&least, &greatest), cudaSuccess);
  ASSERT_EQ(cuda.stream_create_with_priority(&stream, cudaStreamNonBlocking, greatest), cudaSuccess);
  await(nccl.all_reduce(memory, memory, 1, ncclFloat32, ncclSum, comm, stream));
  ASSERT_EQ(cuda.device_synchronize(), cudaSuccess);
  await(nccl.comm_finalize(comm));
  ASSERT_EQ(nccl.comm_destroy(comm), ncclSuccess);
}

TEST(NcclAlone, ReducesInThisProcess) {
  if (real_gpus() == 0) GTEST_SKIP() << "the double is for forked processes";
  reduce_with_nccl_alone();
}

TEST(NcclAlone, ReducesInAForkedProcess) {
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank&) { reduce_with_nccl_alone(); }));
}

}  // namespace
}  // namespace farandole
