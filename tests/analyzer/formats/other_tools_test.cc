// Traces of XLA's profiler, with known answers; and files of other tools, which are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/nsys_file.h"
#include "analyzer/trace_builder.h"
#include "error_message.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using nlohmann::json;
using namespace ::testing;

// Steps of 1 ms from `begin_us` on: a copy from 50 to 100 µs, compute to 600, an all-reduce that ends at 800,
// and that a GPU enters the later the higher its number is. The lines of modules and operations repeat this.
std::string xla_text(int gpus, double begin_us = 1000, const char* device = "/device:GPU:") {
  json events;
  const auto name_of_thread = [&](int pid, int tid, const char* name) {
    events.push_back(
        {{"ph", "M"}, {"pid", pid}, {"tid", tid}, {"name", "thread_name"}, {"args", {{"name", name}}}});
  };
  const auto name_of_process = [&](int pid, const std::string& name) {
    events.push_back({{"ph", "M"}, {"pid", pid}, {"name", "process_name"}, {"args", {{"name", name}}}});
  };
  const auto span = [&](int pid, int tid, const std::string& name, double start, double end) {
    events.push_back(
        {{"ph", "X"}, {"pid", pid}, {"tid", tid}, {"name", name}, {"ts", start}, {"dur", end - start}});
  };
  name_of_process(701, "/host:CPU");
  for (int gpu = 0; gpu < gpus; ++gpu) {
    name_of_process(1 + gpu, device + std::to_string(gpu));
    for (const auto& [tid, name] : std::vector<std::pair<int, const char*>>{{1, "Steps"},
                                                                            {2, "XLA Modules"},
                                                                            {3, "XLA Ops"},
                                                                            {14, "Stream #14(Compute)"},
                                                                            {15, "Stream #15(MemcpyH2D)"}})
      name_of_thread(1 + gpu, tid, name);
  }
  for (int step = 0; step < 10; ++step) {
    const double t = begin_us + 1000 * step;
    span(701, 5, "PjitFunction(train_step)", t, t + 990);
    for (int gpu = 0; gpu < gpus; ++gpu) {
      span(1 + gpu, 1, std::to_string(step), t, t + 1000);
      span(1 + gpu, 2, "jit_train_step(1)", t + 100, t + 800);
      span(1 + gpu, 3, "gemm_fusion_dot.12", t + 100, t + 600);
      span(1 + gpu, 14, "gemm_fusion_dot_12", t + 100, t + 600);
      span(1 + gpu, 15, "MemcpyH2D", t + 50, t + 100);
      span(1 + gpu, 14, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           t + 600 + 10 * gpu, t + 800);
    }
  }
  auto text = json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}.dump();
  return text.insert(text.size() - 2, ",{}");
}

TEST(Xla, CountsTheStreamsOfEachGpu) {
  const TemporaryFolder folder;
  testing::write_gzip(folder / "1gpu.trace.json.gz", xla_text(1));
  const auto run = analyze_run(folder / "1gpu.trace.json.gz");
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  const auto& gpu = *run.metrics.ranks[0].gpu;
  EXPECT_EQ(gpu.window, 9'750'000);
  EXPECT_EQ(gpu.compute, 5'000'000);
  EXPECT_EQ(gpu.communication_only, 2'000'000);
  EXPECT_EQ(gpu.memcpy_only, 500'000);
  EXPECT_EQ(gpu.idle, 2'250'000);
  EXPECT_THAT(run.metrics.window.steps, SizeIs(10));
  EXPECT_THAT(run.metrics.warnings, IsEmpty());
  EXPECT_THAT(report_text(report_of({run}), false), HasSubstr("host to device"));
}

// One folder per capture, one file per host, whose clocks differ.
TEST(Xla, ReadsTheHostsOfTheNewestCapture) {
  const TemporaryFolder folder;
  const auto captures = folder / "plugins" / "profile";
  std::filesystem::create_directories(captures / "2026_01_01");
  std::filesystem::create_directories(captures / "2026_02_01");
  testing::write_gzip(captures / "2026_01_01" / "a.trace.json.gz", xla_text(1));
  testing::write_gzip(captures / "2026_02_01" / "a.trace.json.gz", xla_text(2));
  testing::write_gzip(captures / "2026_02_01" / "b.trace.json.gz", xla_text(2, 7'777));
  testing::write_gzip(captures / "2026_02_01" / "perfetto_trace.json.gz", xla_text(2, 7'777));
  testing::write_text(captures / "2026_02_01" / "a.xplane.pb", "\n\x08\x12\x06/host:CPU");
  for (const auto& path : {folder.path(), captures, captures / "2026_02_01"}) {
    const auto metrics = analyze_run(path).metrics;
    ASSERT_THAT(metrics.ranks, SizeIs(4)) << path;
    EXPECT_EQ(metrics.ranks[3].gpu->communication_only, 1'900'000);
    ASSERT_THAT(metrics.collectives, SizeIs(1));
    EXPECT_EQ(metrics.collectives[0].operation, "allreduce");
    EXPECT_EQ(metrics.collectives[0].count, 10U);
    EXPECT_NEAR(quantile(metrics.ranks[1].step_lateness_ms, 0.5), 0.01, 1e-6);
    EXPECT_THAT(metrics.warnings, ElementsAre(HasSubstr("each GPU is taken as one")));
  }
}

TEST(Xla, WithoutStreamsIsNamed) {
  const TemporaryFolder folder;
  testing::write_text(folder / "cpu.trace.json", xla_text(0));
  auto text = xla_text(1, 0, "/device:TPU:");
  for (std::size_t at = 0; (at = text.find("Stream #", at)) != std::string::npos;)
    text.replace(at, 8, "Framework ");
  testing::write_text(folder / "tpu.trace.json", text);
  for (const auto* name : {"cpu.trace.json", "tpu.trace.json"})
    EXPECT_THAT(message_of<CorruptInput>([&] { analyze_run(folder / name); }),
                HasSubstr("has no stream of a GPU"));
}

// Neither phases nor collectives are known, so no share of communication is claimed.
TEST(ChromeTrace, OfUnknownMeaningClaimsNoCommunication) {
  const TemporaryFolder folder;
  testing::write_text(folder / "t.json", R"([{"ph":"X","name":"f","pid":1,"tid":1,"ts":0,"dur":5}])");
  EXPECT_THAT(analyze_run(folder / "t.json").verdict, Not(HasSubstr("communication")));
}

TEST(ForeignFormat, IsNamedWithWhatToDo) {
  const std::string entries = R"({"pg_config": {"0": {"desc": "default_pg"}}, "entries": []})";
  struct File {
    const char* name;
    std::string bytes;
    const char* remedy;
  };
  for (const auto& [name, bytes, remedy] :
       std::vector<File>{{"report1.nsys-rep", "any", "`nsys export --type sqlite"},
                         {"results.json", R"({"rocprofiler-sdk-tool": [{"agents": []}]})", "rocprofv3"},
                         {"7_kernel_trace.csv", "\"Kind\",\"Agent_Id\",\"Queue_Id\"\n", "rocprofv3"},
                         {"results.pftrace", "\n\x04\x50\x01", "Perfetto"},
                         {"host.xplane.pb.gz", "any", ".trace.json.gz"},
                         {"copy.bin", "\n\x08\x12\x06/host:CPU", ".trace.json.gz"},
                         {"nccl_trace_rank_0", "\x80\x04\x95}(\x8c\x09pg_config", "`torchfrtrace "},
                         {"rank0.json", entries, "`torchfrtrace "},
                         {"memory.pickle",
                          "\x80\x04\x95}(\x8c\x0d"
                          "device_traces",
                          "memory_viz"},
                         {"kernels.ncu-rep", "any", "one by one"},
                         {"et.json", R"({"schema": "1.1.1-chakra.0.0.4", "nodes": []})", "execution trace"},
                         {"inspector.log", R"({"header": {"rank": 0}, "coll_perf": {"coll": "AllReduce"}})",
                          "NCCL Inspector"}}) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "in" / "host1");
    const auto file = folder / "in" / "host1" / name;
    testing::write_text(file, bytes);
    for (const auto& path : {file, folder / "in"}) {
      const auto message = message_of<CorruptInput>([&] { read_run(path); });
      EXPECT_THAT(message, AllOf(HasSubstr(file.string()), HasSubstr(remedy), Not(HasSubstr("\n"))));
    }
  }
  const TemporaryFolder folder;
  testing::execute(folder / "results.db", "CREATE TABLE rocpd_kernel_dispatch(id INTEGER)");
  EXPECT_THAT(message_of<CorruptInput>([&] { read_run(folder / "results.db"); }), HasSubstr("rocprofv3"));
  testing::write_text(folder / "notes.txt", "pg_config was wrong");
  EXPECT_EQ(foreign_format(folder / "notes.txt"), std::nullopt);
}

}  // namespace
}  // namespace farandole
