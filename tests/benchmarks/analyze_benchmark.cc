// How fast a trace is analyzed, beside zlib. Not part of ctest.
//
//   FARANDOLE_TRACE=RUN/timeline.json.gz analyze_benchmark
//
// The trace is a run's timeline.json.gz, or one of PyTorch's profiler. The speeds are those of
// its text, uncompressed.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>
#include <zlib.h>

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/gzip/gzip_writer.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

// The trace in memory, and as two files.
struct Trace {
  TemporaryFolder folder{std::filesystem::temp_directory_path()};
  std::string text;
  std::filesystem::path plain = folder / "trace.json", compressed = folder / "trace.json.gz";

  explicit Trace(const std::filesystem::path& file) {
    const auto input = InflatedFile::open(file);
    if (input == nullptr) throw UserError("trace " + file.string() + " cannot be opened");
    std::vector<char> piece(std::size_t{1} << 20);
    for (std::size_t got = 0; (got = input->read(piece.data(), piece.size())) > 0;)
      text.append(piece.data(), got);
    std::ofstream(plain, std::ios::binary) << text;
    GzipWriter writer(compressed);
    for (std::size_t at = 0; at < text.size(); at += GzipWriter::piece_bytes)
      writer.write(std::string_view(text).substr(at, GzipWriter::piece_bytes));
    writer.finish();
  }
};

const Trace& trace() {
  static const char* const file = std::getenv("FARANDOLE_TRACE");
  if (file == nullptr) throw UserError("set FARANDOLE_TRACE to a trace, for example RUN/timeline.json.gz");
  static const Trace the_trace(file);
  return the_trace;
}

template <class Work>
void measure(benchmark::State& state, Work work) {
  for (auto _ : state) benchmark::DoNotOptimize(work());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * trace().text.size()));
}

void analyze(benchmark::State& state) {
  measure(state, [] { return analyze_run(trace().plain).events; });
}
BENCHMARK(analyze)->Unit(benchmark::kMillisecond)->UseRealTime();

void zlib_inflate(benchmark::State& state) {
  measure(state, [] {
    const gzFile file = gzopen(trace().compressed.c_str(), "rb");
    gzbuffer(file, 128 << 10);
    std::vector<char> piece(std::size_t{256} << 10);
    std::int64_t bytes = 0;
    for (int got = 0; (got = gzread(file, piece.data(), static_cast<unsigned>(piece.size()))) > 0;)
      bytes += got;
    gzclose(file);
    return bytes;
  });
}
BENCHMARK(zlib_inflate)->Unit(benchmark::kMillisecond)->UseRealTime();

void analyze_compressed(benchmark::State& state) {
  measure(state, [] { return analyze_run(trace().compressed).events; });
}
BENCHMARK(analyze_compressed)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace farandole

BENCHMARK_MAIN();
