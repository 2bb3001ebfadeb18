// The kernels, launched in the double of CUDA or on a GPU. What their threads do is tested
// in batched_copy_test.cc, too.
#include "farandole/comm/gpu/gpu_kernels.h"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <random>

#include "comm/gpu_world.h"
#include "comm/random_rule.h"
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

// Columns of one block of memory, in this order, and what the update does with them.
template <class T>
struct UpdatedColumns {
  enum Column {
    scale,
    leave_out,
    reduced,
    parameter,
    state,
    gradients = state + update_fields,
    end = gradients + 4
  };
  std::size_t count, shift;  // in elements

  static constexpr std::size_t room = 3'000 * sizeof(T);  // of each column
  static constexpr std::size_t bytes = end * room;

  std::byte* at(std::byte* block, std::size_t column) const {
    return block + column * room + shift * sizeof(T);
  }
  void fill(std::byte* block, std::mt19937& random) const {
    for (std::size_t i = 0; i < bytes; ++i) block[i] = std::byte{0x5a};
    const auto set = [&](std::size_t column, std::size_t i, double value) {
      store(at(block, column), sizeof(T) == 4 ? DType::float32 : DType::float64, i, value);
    };
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t c = parameter; c < end; ++c) set(c, i, between(random, -2, 2));
      for (const auto squares : {0, 1}) set(state + squares, i, between(random, 2, 4));
      set(state + 2, i, between(random, 0.1, 1));
    }
    store(block + scale * room, DType::float64, 0, between(random, 0.1, 2));
    store(block + leave_out * room, DType::float32, 0, random() % 3 == 0);
  }
  UpdateSlice slice(std::byte* block, std::vector<const void*>& places) const {
    for (std::size_t k = 0; k < places.size(); ++k) places[k] = at(block, gradients + k);
    return {.dtype = sizeof(T) == 4 ? DType::float32 : DType::float64,
            .count = count,
            .parameter = at(block, parameter),
            .state = {at(block, state), at(block, state + 1), at(block, state + 2)},
            .gradients = places,
            .reduced = at(block, reduced),
            .step = 5};
  }
};

template <class T>
void expect_bits_of_cpu(const std::shared_ptr<const GpuRuntime>& runtime, const GpuKernels& kernels,
                        const GpuStream& stream, std::mt19937& random) {
  using Columns = UpdatedColumns<T>;
  const Columns columns{random() % 2'900, coin(random) ? 0 : random() % 9};
  const auto rule = random_rule(random);
  const auto host = runtime->allocate_pinned(Columns::bytes), there = runtime->allocate(Columns::bytes);
  columns.fill(host.get(), random);
  std::vector<std::byte> expected(host.get(), host.get() + Columns::bytes);
  std::vector<const void*> places(1 + random() % 4);
  const double divisor = static_cast<double>(coin(random) ? places.size() : 1);
  const bool has_scale = coin(random), may_leave_out = coin(random);

  auto slice = columns.slice(there.get(), places);
  slice.divisor = divisor;
  slice.gradient_scale = 0.7;
  runtime->copy(there.get(), host.get(), Columns::bytes, stream.handle());
  const auto* const scale = reinterpret_cast<const double*>(there.get() + Columns::scale * Columns::room);
  const auto* const left = reinterpret_cast<const float*>(there.get() + Columns::leave_out * Columns::room);
  kernels.update(rule, slice, has_scale ? scale : nullptr, may_leave_out ? left : nullptr, stream.handle());
  runtime->copy(host.get(), there.get(), Columns::bytes, stream.handle());
  wait_for(runtime, stream);

  slice = columns.slice(expected.data(), places);
  slice.divisor = divisor;
  slice.gradient_scale =
      has_scale ? load(expected.data() + Columns::scale * Columns::room, DType::float64, 0) : 0.7;
  const bool leaves_out = load(expected.data() + Columns::leave_out * Columns::room, DType::float32, 0) == 1;
  if (!may_leave_out || !leaves_out) update(rule, slice);
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), host.get()))
      << "kind " << static_cast<int>(rule.kind) << ", " << columns.count << " elements of " << sizeof(T)
      << " bytes, shift " << columns.shift << ", gradients " << places.size();
}

TEST(GpuKernels, UpdateWithTheBitsOfTheCpu) {
  on_one_device(seed(6), [](const auto& runtime, const auto& kernels, const auto& stream, auto& random) {
    for (int round = 0; round < rounds(40, 400); ++round) {
      expect_bits_of_cpu<float>(runtime, kernels, stream, random);
      expect_bits_of_cpu<double>(runtime, kernels, stream, random);
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
