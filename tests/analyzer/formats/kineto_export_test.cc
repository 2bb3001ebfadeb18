#include "farandole/analyzer/formats/kineto_export.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <tuple>

#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"
#include <nlohmann/json.hpp>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using nlohmann::json;

json exported(const SyntheticRun& run, int rank) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<RecordSource>> sources;
  for (int i = 0; i < run.ranks; ++i) {
    run.record(folder.path(), i);
    sources.push_back(open_source(run.file(folder.path(), i)));
  }
  EXPECT_EQ(export_kineto(with_clocks(std::move(sources)), folder / "kineto"), 3u);
  return json::parse(unzipped(folder / ("kineto/rank-000" + std::to_string(rank) + ".json.gz")));
}

TEST(KinetoExport, NamesTheRankAndItsSteps) {
  const SyntheticRun run;
  const json trace = exported(run, 2);
  EXPECT_EQ(trace["distributedInfo"]["rank"], 2);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 3);
  std::set<std::string> steps;
  for (const json& event : trace["traceEvents"])
    if (event["name"].get<std::string>().starts_with("ProfilerStep#")) steps.insert(event["name"]);
  EXPECT_EQ(steps.size(), static_cast<std::size_t>(run.steps));
}

TEST(KinetoExport, EveryKernelHasItsLaunch) {
  const SyntheticRun run;
  std::map<int, int> launches;
  std::map<std::string, int> kernels;
  const json trace = exported(run, 1);
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "cuda_runtime") ++launches[event["args"]["correlation"]];
    if (event.value("cat", "") != "kernel") continue;
    ++kernels[event["name"]];
    EXPECT_EQ(launches[event["args"]["correlation"]], 1);
    EXPECT_EQ(event["tid"], event["args"]["stream"]);
  }
  EXPECT_EQ(kernels["ncclDevKernel_AllReduce(bucket 1)"], run.steps);
  EXPECT_EQ(kernels["gemm"], run.steps);
  EXPECT_EQ(kernels.count("forward"), 0u) << "the host's phases are no compute where there is a GPU";
}

// The reader of PyTorch's profiles finds when work was launched, in which phase, and what was copied.
TEST(KinetoExport, KeepsTheLaunchesOfGpuWork) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl", .host = "node0"};
  {
    Timeline timeline(options);
    timeline.name_thread("training");
    const auto gpu = timeline.add_track("GPU 0 stream 7");
    const auto gemm = timeline.intern("gemm"), copy = timeline.intern("copy host to device");
    for (int step = 0; step < 3; ++step) {
      const std::int64_t at = SyntheticRun::start_ns + step * SyntheticRun::step_ns;
      timeline.set_step(step);
      timeline.span(Category::forward, "forward", at, at + 2'000'000);
      timeline.span(Category::backward, "backward", at + 2'000'000, at + 6'000'000);
      timeline.span(Category::step, "step", at, at + 6'000'000);
      timeline.span_on(gpu, Category::gpu_memcpy, copy, {step, Category::forward}, at + 1'500'000,
                       at + 1'600'000, at + 1'000'000, 4096 + static_cast<std::uint64_t>(step));
      timeline.span_on(gpu, Category::gpu_kernel, gemm, {step, Category::forward}, at + 2'500'000,
                       at + 3'000'000, at + 1'200'345, 0);
      timeline.span_on(gpu, Category::gpu_kernel, gemm, {step, Category::backward}, at + 3'000'000,
                       at + 7'000'000, at + 2'200'000, 0);
    }
  }
  std::vector<std::unique_ptr<RecordSource>> sources;
  sources.push_back(open_source(options.file));
  export_kineto(with_clocks(std::move(sources)), folder / "kineto");
  const auto work_of = [](const RunModel& run) {
    std::vector<std::tuple<std::int64_t, std::int64_t, int, std::uint64_t>> work;
    for (const auto& span : run.ranks.at(0).gpu_of(run.ranks[0].packed_gpu.begin()->first)) {
      EXPECT_EQ(span.launch_is, NamedSpan::Launch::time);
      work.emplace_back(span.start - span.launch, span.end - span.start, span.phase, span.bytes);
    }
    return work;
  };
  const auto recorded = work_of(read_recorders(options.file)), read = work_of(read_run(folder / "kineto"));
  EXPECT_EQ(recorded.size(), 9u);
  EXPECT_EQ(read, recorded);
}

}  // namespace
}  // namespace farandole
