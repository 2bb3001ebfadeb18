// Batches on their way to a device of LibTorch that is made of the test double of CUDA. The double counts
// work that uses the same memory without order.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "gpu/torch_double.h"
#include "hang.h"

#include "farandole/trainer/data/batch_sequence.h"
#include "farandole/trainer/data/labelled_samples.h"

namespace farandole {
namespace {

template <class Function>
Function& of_double(const char* name) {
  auto* const function = ::dlsym(::dlopen(FARANDOLE_GPU_DOUBLE, RTLD_NOW), name);
  if (function == nullptr) throw Error(std::string("the double of CUDA has no ") + name);
  return *reinterpret_cast<Function*>(function);
}

int races() {
  return of_double<int()>("gpu_double_races")();
}

// Runs `body` in a process of its own, which keeps the device. A host that waits for what cannot
// come is killed.
void expect_to_pass(void (*body)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [body] {
    end_if_it_hangs(60);
    body();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

void wait_for(TorchDouble& gpu, TorchDouble::Stream stream) {
  GpuEvent event(gpu.runtime);
  event.record(gpu.handle(stream));
  while (!event.reached()) std::this_thread::yield();
}

// A stream that stands until the object is destroyed.
class Standing {
 public:
  Standing(TorchDouble& gpu, TorchDouble::Stream stream) : counter_(gpu.runtime->allocate_pinned(4)) {
    of_double<int(CUstream_st*, unsigned long long, unsigned, unsigned)>("cuStreamWaitValue32_v2")(
        gpu.handle(stream), reinterpret_cast<std::uintptr_t>(counter_.get()), 1, 0);
  }
  ~Standing() { std::atomic_ref(*reinterpret_cast<std::uint32_t*>(counter_.get())).store(1); }

 private:
  const Buffer counter_;
};

// 40 images of 3 x 4 x 5; each has its number in all places.
LabelledSamples images() {
  const auto y = torch::arange(40);
  return {y.to(torch::kFloat32).reshape({40, 1, 1, 1}).expand({40, 3, 4, 5}).contiguous(), y};
}

std::vector<std::int64_t> values(const torch::Tensor& on_device) {
  const auto* const data = static_cast<const std::int64_t*>(on_device.const_data_ptr());
  return {data, data + on_device.numel()};
}

TEST(DeviceInput, CopiesWhileTheOtherStreamStands) {
  expect_to_pass([] {
    auto& gpu = TorchDouble::install();
    const auto data = images();
    DeviceInput input(TorchDouble::device);
    ASSERT_TRUE(input.copies());
    GpuEvent computed(gpu.runtime);
    {
      const Standing standing(gpu, TorchDouble::computing);
      const std::vector<std::int64_t> first{3, 1, 2}, second{7};
      const auto a = input.start(data.get(first)), b = input.start(data.get(second));
      wait_for(gpu, TorchDouble::other);
      EXPECT_EQ(values(a.y), first);
      EXPECT_EQ(values(b.y), second);
      EXPECT_EQ(a.x.device(), TorchDouble::device);
      EXPECT_TRUE(a.x.is_contiguous(torch::MemoryFormat::ChannelsLast));
      EXPECT_EQ(static_cast<const float*>(a.x.const_data_ptr())[3 * 4 * 5], 1);
      input.hold(a);
      computed.record(gpu.handle(TorchDouble::computing));
      EXPECT_FALSE(computed.reached());
    }
    while (!computed.reached()) std::this_thread::yield();
    EXPECT_EQ(races(), 0);
  });
}

// Reads each batch of an epoch on the stream that computes, while the next one is copied, and drops the last
// one. Returns the labels that were read.
std::vector<std::int64_t> train(TorchDouble& gpu) {
  const auto data = images();
  DistributedSampler sampler(data.size(), 0, 1, {.seed = 3});
  DeviceInput input(TorchDouble::device);
  Timeline timeline;
  BatchSequence batches(data, sampler, 3, input, timeline);
  std::vector<Buffer> results;
  while (batches.left() > 1) {
    const auto batch = batches.next().batch;
    results.push_back(gpu.runtime->allocate_pinned(batch.y.nbytes()));
    gpu.runtime->copy(results.back().get(), batch.y.const_data_ptr(), batch.y.nbytes(),
                      gpu.handle(TorchDouble::computing));
    batches.prefetch();
  }
  wait_for(gpu, TorchDouble::computing);
  wait_for(gpu, TorchDouble::other);
  std::vector<std::int64_t> labels;
  for (const auto& result : results) {
    const auto* const read = reinterpret_cast<const std::int64_t*>(result.get());
    labels.insert(labels.end(), read, read + 3);
  }
  EXPECT_EQ(batches.seen(), static_cast<std::int64_t>(labels.size()));
  return labels;
}

TEST(DeviceInput, BatchesAreReadInOrderAndTheirMemoryIsUsedAgain) {
  expect_to_pass([] {
    auto& gpu = TorchDouble::install();
    std::vector<std::int64_t> order = DistributedSampler(40, 0, 1, {.seed = 3}).indices();
    order.resize(39);
    EXPECT_EQ(train(gpu), order);
    const auto before = gpu.used_again();
    EXPECT_EQ(train(gpu), order);
    EXPECT_GT(gpu.used_again(), before);
    EXPECT_EQ(races(), 0);
  });
}

TEST(DeviceInputMutations, TheWaitForACopyCannotBeLeftOut) {
  expect_to_pass([] {
    auto& gpu = TorchDouble::install();
    ::setenv("GPU_DOUBLE_LOSE_WAIT", "0", 1);
    train(gpu);
    EXPECT_GT(races(), 0);
  });
}

}  // namespace
}  // namespace farandole
