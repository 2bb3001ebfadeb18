// Payload rate of the reduction kernels, in place on all inputs, as one rank of a node sees it that reduces
// everything alone. Not part of ctest.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

// Zeroed pages of a mapping, huge where the system allows it.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 0, bytes);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

void reduce_in_place(benchmark::State& state, const KernelSet* set, DType dtype, ReduceOp op) {
  const auto inputs = static_cast<std::size_t>(state.range(0));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  const Pages pages(inputs * bytes);
  std::vector<std::byte*> data;
  for (std::size_t i = 0; i < inputs; ++i) data.push_back(pages.data() + i * bytes);
  const auto kernel = set->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  for (auto _ : state) {
    kernel(data.data(), inputs, data.data(), inputs, bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
  state.counters["elements/s"] = benchmark::Counter(static_cast<double>(bytes / size_of(dtype)),
                                                    benchmark::Counter::kIsIterationInvariantRate);
}

// The same traffic without arithmetic: both buffers are read and written.
void memory_traffic(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Pages pages(2 * bytes);
  auto* a = reinterpret_cast<std::uint64_t*>(pages.data());
  auto* b = reinterpret_cast<std::uint64_t*>(pages.data() + bytes);
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof *a; ++i) {
      const auto both = a[i] ^ b[i];
      a[i] = both;
      b[i] = both;
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}
BENCHMARK(memory_traffic)->Arg(1 << 16)->Arg(1 << 20)->Arg(16 << 20)->Arg(64 << 20);

void register_all() {
  for (const auto* set : kernel_sets())
    for (const auto dtype : {DType::float32, DType::bfloat16, DType::float16})
      for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
        const auto name = std::string(set->instructions) + "/" + std::string(name_of(dtype)) + "/" +
                          std::string(name_of(op));
        benchmark::RegisterBenchmark(name.c_str(), reduce_in_place, set, dtype, op)
            ->ArgNames({"inputs", "bytes"})
            ->ArgsProduct({{2, 3, 4, 6}, {256, 16 << 10, 1 << 20, 64 << 20}});
      }
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  farandole::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
