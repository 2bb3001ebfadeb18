#include "farandole/analyzer/formats/kineto_export.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"
#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace farandole
