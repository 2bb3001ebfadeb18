// What a span costs beside the two clock reads it cannot do without. Not part of ctest.
#include <benchmark/benchmark.h>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

std::filesystem::path file() {
  return std::filesystem::temp_directory_path() / ("farandole-span-benchmark-" + std::to_string(::getpid()));
}

void clock_pair(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(now_ns());
    benchmark::DoNotOptimize(now_ns());
  }
}
BENCHMARK(clock_pair);

void disabled_span(benchmark::State& state) {
  Timeline timeline;
  for (auto _ : state) {
    const Span span(timeline, Category::forward, "forward");
    benchmark::ClobberMemory();
  }
}
BENCHMARK(disabled_span);

void span(benchmark::State& state) {
  TimelineOptions options;
  options.file = file();
  Timeline timeline(options);
  std::filesystem::remove(options.file);
  timeline.name_thread("training");
  for (auto _ : state) const Span one(timeline, Category::forward, "forward");
}
BENCHMARK(span);

// A program's names in turn, as many as the argument says: MPI alone has some 180.
void span_of_many_names(benchmark::State& state) {
  TimelineOptions options;
  options.file = file();
  Timeline timeline(options);
  std::filesystem::remove(options.file);
  timeline.name_thread("training");
  std::deque<std::string> texts;
  while (static_cast<std::int64_t>(texts.size()) < state.range(0))
    texts.push_back("MPI_Function_" + std::to_string(texts.size()));
  std::vector<const char*> names;
  for (const auto& text : texts) names.push_back(text.c_str());
  std::size_t next = 0;
  for (auto _ : state) {
    const Span one(timeline, Category::forward, names[next]);
    if (++next == names.size()) next = 0;
  }
}
BENCHMARK(span_of_many_names)->Arg(1)->Arg(16)->Arg(64)->Arg(180);

void record_only(benchmark::State& state) {
  TimelineOptions options;
  options.file = file();
  options.recorder_bytes = static_cast<std::size_t>(state.range(0)) << 20;
  Timeline timeline(options);
  std::filesystem::remove(options.file);
  const NameId name = timeline.intern("forward");
  for (auto _ : state) timeline.span(Category::forward, name, 1, 2);
}
BENCHMARK(record_only)->Arg(1)->Arg(64);  // MiB: in the cache, and as by default

}  // namespace
}  // namespace farandole

BENCHMARK_MAIN();
