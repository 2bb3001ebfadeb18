// Time of a fused update by one thread, against copies that move as many bytes and against LibTorch's fused
// kernel. Not part of ctest. To compare, interleave all of them:
// OMP_NUM_THREADS=1 build/bin/update_benchmark --benchmark_enable_random_interleaving
//     --benchmark_repetitions=9 --benchmark_report_aggregates_only
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "farandole/comm/kernels/kernel_set.h"
#include "farandole/comm/kernels/update.h"

namespace farandole {
namespace {

constexpr std::size_t count = 8 << 20;

// Numbers in a mapping of their own, on huge pages where the system allows it.
class Column {
 public:
  Column() {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    data = static_cast<float*>(memory);
    for (std::size_t i = 0; i < count; ++i) data[i] = 0.001f * static_cast<float>(i % 1000 + 1);
  }
  ~Column() { ::munmap(data, bytes); }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  static constexpr std::size_t bytes = count * sizeof(float);
  float* data;
};

UpdateRule rule_of(UpdateRule::Kind kind) {
  UpdateRule rule;
  rule.kind = kind;
  rule.lr = 1e-5;
  rule.weight_decay = 0.01;
  rule.momentum = 0.9;
  rule.beta1 = 0.9;
  rule.beta2 = 0.999;
  rule.alpha = 0.99;
  rule.eps = 1e-8;
  return rule;
}

// What the update reads and writes; a write to memory that was read is no other read.
std::size_t traffic(const UpdateRule& rule, std::size_t gradients) {
  std::size_t fields = 0;
  for (std::size_t f = 0; f < update_fields; ++f) fields += rule.uses(f);
  return Column::bytes * (gradients + 2 + 2 * fields);
}

void updates(benchmark::State& state, const KernelSet* set, UpdateRule::Kind kind) {
  const auto rule = rule_of(kind);
  const auto ranks = static_cast<std::size_t>(state.range(0));
  Column parameter, fields[update_fields];
  std::vector<Column> gradients(ranks);
  std::vector<const void*> places;
  for (auto& gradient : gradients) places.push_back(gradient.data);
  UpdateSlice slice{DType::float32, count,
                    parameter.data, {fields[0].data, fields[1].data, fields[2].data},
                    places,         static_cast<double>(ranks)};
  for (auto _ : state) {
    ++slice.step;
    update(rule, slice, *set);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(traffic(rule, ranks)) * state.iterations());
}

// As many bytes as AdamW with one gradient: half of them are read, and half are written.
template <class Copy>
void copies(benchmark::State& state, Copy copy) {
  const Column columns[7];
  for (auto _ : state) {
    for (std::size_t c = 0; c < 3; ++c) copy(columns[c + 3].data, columns[c].data, count);
    copy(columns[6].data, columns[6].data + count / 2, count / 2);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(7 * Column::bytes) * state.iterations());
}

void with_memcpy(float* to, const float* from, std::size_t numbers) {
  std::memcpy(to, from, numbers * sizeof *to);
}

#ifdef __SSE2__
// Past the caches, so that the memory that is written is not read before.
void with_streams(float* to, const float* from, std::size_t numbers) {
  for (std::size_t i = 0; i < numbers; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  _mm_sfence();
}
#endif

void torch_adamw(benchmark::State& state) {
  const Column columns[4];
  const auto tensor = [&](std::size_t c) {
    return at::from_blob(columns[c].data, {static_cast<std::int64_t>(count)}, at::kFloat);
  };
  const at::Tensor parameter = tensor(0), gradient = tensor(1), first = tensor(2), second = tensor(3);
  const auto step = at::full({}, 1, at::kFloat);
  for (auto _ : state) {
    at::_fused_adamw_({parameter}, {gradient}, {first}, {second}, {}, {step}, 1e-5, 0.9, 0.999, 0.01, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(7 * Column::bytes) * state.iterations());
}

void register_all() {
  using Kind = UpdateRule::Kind;
  benchmark::RegisterBenchmark("copy/memcpy", copies<decltype(with_memcpy)*>, with_memcpy)
      ->Unit(benchmark::kMillisecond);
#ifdef __SSE2__
  benchmark::RegisterBenchmark("copy/streams", copies<decltype(with_streams)*>, with_streams)
      ->Unit(benchmark::kMillisecond);
#endif
  benchmark::RegisterBenchmark("LibTorch/adamw", torch_adamw)->Unit(benchmark::kMillisecond);
  for (const auto* set : kernel_sets())
    for (const auto& [kind, name] :
         {std::pair(Kind::sgd, "sgd"), std::pair(Kind::adamw, "adamw"), std::pair(Kind::rmsprop, "rmsprop")})
      benchmark::RegisterBenchmark((std::string(set->instructions) + "/" + name).c_str(), updates, set, kind)
          ->ArgName("gradients")
          ->Arg(1)
          ->Arg(2)
          ->Arg(4)
          ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  farandole::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
