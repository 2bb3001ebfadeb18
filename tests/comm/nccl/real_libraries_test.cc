#include <dlfcn.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace farandole
