// The kernels, launched in the double of CUDA or on a GPU. What their threads do is tested
// in batched_copy_test.cc, too.
#include "farandole/comm/gpu/gpu_kernels.h"

#include <gmock/gmock.h>
#include <limits>
#include <random>

#include "comm/gpu_world.h"
#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/comm/gpu/kernel_jobs.h"

namespace farandole {
namespace {

void wait_for(const std::shared_ptr<const GpuRuntime>& runtime, const GpuStream& stream) {
  GpuEvent end(runtime);
  end.record(stream.handle());
  while (!end.reached()) std::this_thread::yield();
}

// Calls work(runtime, kernels, stream, random) in a process of its own.
template <class Work>
void on_one_device(unsigned first, Work work) {
  expect_all_succeed(run_gpu_ranks(1, [&](GpuRank& rank) {
    SCOPED_TRACE(testing::Message() << "seed " << first);
    rank.runtime->use(0);
    const GpuKernels kernels(rank.runtime);
    const GpuStream stream(rank.runtime);
    std::mt19937 random(first);
    work(rank.runtime, kernels, stream, random);
  }));
}

TEST(GpuKernels, CopyAllPiecesWithOneLaunch) {
  on_one_device(seed(3), [](const auto& runtime, const auto& kernels, const auto& stream, auto& random) {
    constexpr std::size_t bytes = 300'000, count = 9;
    const auto from = runtime->allocate_pinned(bytes), to = runtime->allocate_pinned(bytes),
               host = runtime->allocate_pinned(count * sizeof(CopyPiece));
    const auto there = runtime->allocate(bytes), packed = runtime->allocate(bytes),
               table = runtime->allocate(count * sizeof(CopyPiece));
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(random());
    std::vector<std::byte> expected(bytes);
    const std::span pieces(reinterpret_cast<CopyPiece*>(host.get()), count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t source = random() % (bytes / 2), length = random() % (bytes / count - 20);
      const std::size_t target = i * (bytes / count) + random() % 16;
      pieces[i] = {there.get() + source, packed.get() + target, length, 0};
      std::copy_n(from.get() + source, length, expected.begin() + static_cast<std::ptrdiff_t>(target));
    }
    runtime->copy(there.get(), from.get(), bytes, stream.handle());
    const auto parts = GpuKernels::number_parts(pieces);
    runtime->copy(table.get(), host.get(), pieces.size_bytes(), stream.handle());
    kernels.copy({reinterpret_cast<const CopyPiece*>(table.get()), count}, parts, stream.handle());
    runtime->copy(to.get(), packed.get(), bytes, stream.handle());
    wait_for(runtime, stream);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to.get()));
    if (real_gpus() == 0) {
      EXPECT_EQ(of_double<int()>("gpu_double_launches")(), 1);
    }
  });
}

// Zero, one, the largest and the smallest numbers are finite.
TEST(GpuKernels, FindTheFirstNumberThatIsNotFinite) {
  on_one_device(seed(4), [](const auto& runtime, const auto& kernels, const auto& stream, auto& random) {
    struct Result {
      std::uint64_t first = all_finite;
      float found = 0;
    };
    constexpr double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()};
    for (const auto dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64})
      for (int round = 0; round < 12; ++round) {
        const std::size_t count = random() % 9'000, bytes = count * size_of(dtype);
        const auto host = runtime->allocate_pinned(bytes), out = runtime->allocate_pinned(sizeof(Result));
        const auto data = runtime->allocate(bytes), result = runtime->allocate(sizeof(Result));
        for (std::size_t i = 0; i < count; ++i) {
          const double finite[] = {0, 1, dtype == DType::float16 ? 65504 : 3e38, -6e-8};
          store(host.get(), dtype, i, finite[random() % 4]);
        }
        Result expected;
        for (auto bads = count == 0 ? 0 : random() % 3; bads-- > 0;) {
          const std::uint64_t at = random() % count;
          store(host.get(), dtype, at, bad[random() % 3]);
          expected = {std::min(expected.first, at), 1};
        }
        *reinterpret_cast<Result*>(out.get()) = Result();
        runtime->copy(data.get(), host.get(), bytes, stream.handle());
        runtime->copy(result.get(), out.get(), sizeof(Result), stream.handle());
        auto* const there = reinterpret_cast<Result*>(result.get());
        kernels.find_nonfinite(data.get(), count, dtype, &there->first, &there->found, stream.handle());
        runtime->copy(out.get(), result.get(), sizeof(Result), stream.handle());
        wait_for(runtime, stream);
        EXPECT_EQ(reinterpret_cast<Result*>(out.get())->first, expected.first) << name_of(dtype);
        EXPECT_EQ(reinterpret_cast<Result*>(out.get())->found, expected.found) << name_of(dtype);
      }
  });
}

TEST(GpuKernels, SayIfTheGpuIsTooOld) {
  for (const std::string call : {"cudaLibraryLoadData", "cudaLibraryGetKernel", "cudaLaunchKernel"}) {
    const auto ends =
        run_gpu_ranks(1,
                      [](GpuRank& rank) {
                        const GpuKernels kernels(rank.runtime);
                        const auto memory = rank.runtime->allocate(16);
                        const GpuStream stream(rank.runtime);
                        kernels.find_nonfinite(memory.get(), 1, DType::float32,
                                               reinterpret_cast<std::uint64_t*>(memory.get() + 8),
                                               reinterpret_cast<float*>(memory.get() + 4), stream.handle());
                      },
                      {{"GPU_DOUBLE_FAIL", call + ":1"}});
    EXPECT_EQ(ends[0].exit_code, 1) << call;
    EXPECT_THAT(ends[0].message, testing::HasSubstr(call));
  }
}

}  // namespace
}  // namespace farandole
