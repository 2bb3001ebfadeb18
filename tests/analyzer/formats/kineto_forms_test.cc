// What makes a file one of PyTorch's profiler, and which rank it is: re-saved files, old versions, other
// accelerators, several captures, GPUs and processes.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "analyzer/formats/kineto_file.h"
#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "lane.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using namespace ::testing;
using testing::KinetoFile;
using OrderedJson = nlohmann::ordered_json;

constexpr double us_per_ms = 1e3;

// The GPU computes from 1 to 5 and from 6 to 8 ms, reduces from 4 to 7 and copies from 10 to 11.
KinetoFile ten_ms(int rank = 0, int world_size = 1, double t = 0) {
  KinetoFile file(rank, world_size);
  file.cpu("user_annotation", "ProfilerStep#5", t + 0.5 * us_per_ms, t + 11.5 * us_per_ms);
  file.cpu("cpu_op", "aten::linear", t + 0.6 * us_per_ms, t + 0.9 * us_per_ms);
  file.gpu("kernel", "sgemm_a", 7, t + 1 * us_per_ms, t + 5 * us_per_ms);
  file.gpu("kernel", "sgemm_b", 7, t + 6 * us_per_ms, t + 8 * us_per_ms);
  file.gpu(
      "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20, t + 4 * us_per_ms, t + 7 * us_per_ms,
      {{"Collective name", "allreduce"}, {"In msg nelems", 1000}, {"Group size", 1}, {"dtype", "Float"}});
  file.gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, t + 10 * us_per_ms, t + 11 * us_per_ms);
  return file;
}

void expect_ten_ms(const RunMetrics& metrics) {
  ASSERT_THAT(metrics.ranks, SizeIs(1));
  const auto shares = gpu_shares(metrics);
  ASSERT_TRUE(shares) << metrics.no_gpu;
  EXPECT_DOUBLE_EQ(shares->utilization, 0.7);
  EXPECT_DOUBLE_EQ(shares->compute, 0.6);
  EXPECT_DOUBLE_EQ(shares->communication_only, 0.1);
  EXPECT_DOUBLE_EQ(shares->memcpy_only, 0.1);
  EXPECT_DOUBLE_EQ(shares->idle, 0.2);
  EXPECT_NEAR(metrics.overlap.value.value_or(-1), 2.0 / 3, 1e-12);
  EXPECT_EQ(metrics.window.length(), 10'000'000);
}

RunMetrics metrics_of(const std::string& text) {
  const TemporaryFolder folder;
  testing::write_text(folder / "trace.json", text);
  return analyze_run(folder / "trace.json").metrics;
}

// Writes events as other programs write them again: keys and events in any order, times and identities as
// texts, the keys of the file behind the events or left out, and a byte-order mark.
class Resaver {
 public:
  explicit Resaver(unsigned seed) : random_(seed) {}

  std::string again(const nlohmann::json& file) {
    auto events = file["traceEvents"];
    if (coin()) std::shuffle(events.begin(), events.end(), random_);
    const bool times_as_text = coin(), threads_as_text = coin();
    auto written = OrderedJson::array();
    for (auto& event : events) {
      for (const auto* key : {"ts", "dur"})
        if (times_as_text && event.contains(key)) event[key] = event[key].dump();
      if (threads_as_text && event.contains("tid") && event["tid"].is_number())
        event["tid"] = (event["pid"] == 0 ? "stream " : "") + event["tid"].dump();
      written.push_back(shuffled(event));
    }
    std::string head, tail;
    if (coin()) {
      const auto keys = shuffled({{"distributedInfo", file["distributedInfo"]},
                                  {"deviceProperties", file["deviceProperties"]},
                                  {"schemaVersion", 1}})
                            .dump();
      (coin() ? head : tail) = keys.substr(1, keys.size() - 2);
    }
    std::string text = coin() ? "\xEF\xBB\xBF" : "";
    const int indentation = coin() ? -1 : static_cast<int>(random_() % 4);
    text += "{" + head + (head.empty() ? "" : ",") + "\"traceEvents\":" + written.dump(indentation);
    return text + (tail.empty() ? "" : ",") + tail + "}";
  }

 private:
  bool coin() { return random_() % 2 == 0; }
  OrderedJson shuffled(const nlohmann::json& object) {
    std::vector<std::string> keys;
    for (const auto& member : object.items()) keys.push_back(member.key());
    std::shuffle(keys.begin(), keys.end(), random_);
    OrderedJson result = OrderedJson::object();
    for (const auto& key : keys)
      result[key] = object[key].is_object() ? shuffled(object[key]) : OrderedJson(object[key]);
    return result;
  }

  std::mt19937 random_;
};

// Nested and repeated phases, operators within and between them, autograd's thread, several streams.
KinetoFile busy_run(unsigned seed) {
  std::mt19937 random(seed);
  KinetoFile file(0, 1);
  for (int step = 0; step < 4; ++step) {
    const double t = 1e6 + step * 100 * us_per_ms;
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step), t, t + 99 * us_per_ms);
    for (const auto* name :
         {"enumerate(DataLoader)#next", "forward", "backward", "Optimizer.step#SGD.step"}) {
      // No two phases begin and end together, because their order would decide which is the inner one.
      const double start =
          t + static_cast<double>(random() % 60) * us_per_ms + 7 * static_cast<double>(name[0] - 'A');
      file.cpu("user_annotation", name, start, start + static_cast<double>(1 + random() % 40) * us_per_ms);
    }
    for (int i = 0; i < 30; ++i) {
      const double start = t + static_cast<double>(random() % 900) * 100;
      const double end = start + static_cast<double>(1 + random() % 90) * 100;
      file.cpu("cpu_op", i % 5 == 0 ? "autograd::engine::evaluate_function: X" : "aten::mm", start, end);
      file.operation(77, i % 2 == 0 ? "autograd::engine::evaluate_function: Y" : "aten::mm", start, end);
      file.cpu("cuda_runtime", "cudaLaunchKernel", start, start + 3);
      file.gpu("kernel", "gemm" + std::to_string(i), 7 + i % 3, start, end);
    }
    file.all_reduce(t + 30 * us_per_ms, t + 45 * us_per_ms);
    file.all_reduce(t + 50 * us_per_ms, t + 55 * us_per_ms);
    file.gpu("gpu_memcpy", "Memcpy DtoD", 9, t + 90 * us_per_ms, t + 97 * us_per_ms);
  }
  return file;
}

TEST(KinetoForms, OrderOfKeysAndEventsChangesNothing) {
  const TemporaryFolder folder;
  const auto file = folder / "trace.json";
  const auto report_of_file = [&](const std::string& text) {
    testing::write_text(file, text);
    auto run = nlohmann::json::parse(report_json(report_of({analyze_run(file)})))["runs"][0];
    run.erase("path");
    return run;
  };
  for (int round = 0; round < rounds(15, 1'000); ++round) {
    const auto sound = busy_run(seed(static_cast<unsigned>(round)));
    Resaver resaver(seed(static_cast<unsigned>(1'000 + round)));
    const auto again = resaver.again(nlohmann::json::parse(sound.text()));
    ASSERT_EQ(report_of_file(again), report_of_file(sound.text())) << round << "\n" << again.substr(0, 3'000);
  }
}

TEST(KinetoForms, IsToldByItsEventsBehindAnyHeader) {
  const auto file = nlohmann::json::parse(ten_ms().text());
  expect_ten_ms(metrics_of(nlohmann::json{{"traceEvents", file["traceEvents"]}}.dump()));
  expect_ten_ms(metrics_of(file["traceEvents"].dump(1)));
  // Half a megabyte of other keys comes before everything that tells a trace of PyTorch's profiler.
  const auto text = nlohmann::json{{"traceEvents", file["traceEvents"]}}.dump();
  expect_ten_ms(metrics_of("{\"a\":\"" + std::string(600'000, 'x') + "\"," + text.substr(1)));
  const auto metrics = metrics_of(text);
  EXPECT_THAT(metrics.warnings, Not(Contains(HasSubstr("process"))));
  EXPECT_EQ(metrics.ranks[0].process, "process 39 on GPU 0");
}

TEST(KinetoForms, OfPyTorch18HasTextsAsThreads) {
  auto file = nlohmann::json::parse(ten_ms().text());
  file.erase("distributedInfo");
  const std::map<std::string, std::string> categories = {{"user_annotation", "Operator"},
                                                         {"cpu_op", "Operator"},
                                                         {"kernel", "Kernel"},
                                                         {"gpu_memcpy", "Memcpy"}};
  for (auto& event : file["traceEvents"]) {
    if (event.contains("cat") && categories.count(event["cat"]) > 0)
      event["cat"] = categories.at(event["cat"]);
    if (event["tid"].is_number())
      event["tid"] = (event["pid"] == 0 ? "stream " : "") + std::to_string(event["tid"].get<int>());
  }
  const auto metrics = metrics_of(file.dump());
  expect_ten_ms(metrics);
  EXPECT_THAT(metrics.window.step_numbers, ElementsAre(5));
}

// The categories of these devices are not those of GPUs.
TEST(KinetoForms, OfOtherAcceleratorsHasTheWorkOfTheDevice) {
  KinetoFile file(0, 1, "gloo");
  const auto device = [&](const char* category, const char* name, double start, double end, const char* key) {
    file.span(category, name, 9, 801, start, end, {{"stream", 102}, {key, "HOST_TO_DEVICE"}});
  };
  file.cpu("user_annotation", "ProfilerStep#3", 1 * us_per_ms, 11 * us_per_ms);
  file.cpu("cpu_op", "aten::linear", 1 * us_per_ms, 10.9 * us_per_ms);
  device("mtia_ccp_events", "fc-dtype_Float", 1 * us_per_ms, 3 * us_per_ms, "x");
  device("strange_device", "fc-dtype_Float", 3 * us_per_ms, 5 * us_per_ms, "x");
  device("mtia_ccp_events", "dma_request", 9 * us_per_ms, 11 * us_per_ms, "direction");
  const auto metrics = metrics_of(file.text());
  const auto shares = gpu_shares(metrics);
  ASSERT_TRUE(shares);
  EXPECT_DOUBLE_EQ(shares->compute, 0.4);
  EXPECT_DOUBLE_EQ(shares->memcpy_only, 0.2);
  EXPECT_DOUBLE_EQ(shares->idle, 0.4);
  EXPECT_DOUBLE_EQ(*metrics.parallel_efficiency.value, 0.4);
}

TEST(KinetoForms, OfTheHostOnlyKnowsNoCompute) {
  const auto host_only = [](const char* backend, const char* launch) {
    KinetoFile file(0, 1, backend);
    file.cpu("user_annotation", "ProfilerStep#3", 1 * us_per_ms, 11 * us_per_ms);
    file.cpu("cpu_op", "aten::linear", 1 * us_per_ms, 10.9 * us_per_ms);
    file.cpu("cuda_runtime", launch, 2 * us_per_ms, 2.1 * us_per_ms);
    return metrics_of(file.text());
  };
  for (const auto& metrics :
       {host_only("gloo", "cudaLaunchKernel"), host_only("nccl", "cudaDeviceSynchronize")}) {
    EXPECT_FALSE(metrics.parallel_efficiency.value);
    EXPECT_THAT(metrics.no_compute, HasSubstr("recorded only the host"));
    EXPECT_THAT(metrics.no_gpu, HasSubstr("recorded only the host"));
  }
  // The profiler itself waits for devices, also for a program that does not use them.
  EXPECT_TRUE(host_only("gloo", "cudaDeviceSynchronize").parallel_efficiency.value);
}

TEST(KinetoForms, OfTheHostOnlyIsNoRankBesideOthers) {
  const TemporaryFolder folder;
  testing::write_text(folder / "a.json", ten_ms(0, 2).text());
  KinetoFile file(1, 2);
  file.cpu("user_annotation", "ProfilerStep#5", 0.5 * us_per_ms, 11.5 * us_per_ms);
  file.cpu("cpu_op", "aten::linear", 0.6 * us_per_ms, 11 * us_per_ms);
  testing::write_text(folder / "b.json", file.text());
  const auto metrics = analyze_run(folder.path()).metrics;
  expect_ten_ms(metrics);
  EXPECT_THAT(metrics.warnings,
              Contains(HasSubstr("rank 1 uses an accelerator, but the file has no kernels")));
}

TEST(KinetoForms, OfTwoCapturesTheOneWithKernelsCounts) {
  for (const bool first_has_kernels : {false, true}) {
    const TemporaryFolder folder;
    KinetoFile host(0, 1);
    host.cpu("user_annotation", "ProfilerStep#5", 0.5 * us_per_ms, 11.5 * us_per_ms);
    host.cpu("cpu_op", "aten::linear", 0.6 * us_per_ms, 0.9 * us_per_ms);
    const auto name = [](int number) { return "node1_4242." + std::to_string(number) + ".pt.trace.json"; };
    testing::write_text(folder / name(first_has_kernels ? 9 : 10), ten_ms(0, 1, 90 * us_per_ms).text());
    testing::write_text(folder / name(first_has_kernels ? 10 : 9), host.text());
    const auto metrics = analyze_run(folder.path()).metrics;
    expect_ten_ms(metrics);
    EXPECT_THAT(metrics.warnings, Contains(HasSubstr(name(first_has_kernels ? 10 : 9) +
                                                     ". Perhaps the folder has two runs or captures. The "
                                                     "second file, which has no kernels, is left out")));
  }
}

// Rank 1 begins a step later. Its collectives are those with the same numbers, not those at the same places.
TEST(KinetoForms, CollectivesAreMatchedByTheirNumbers) {
  const std::vector<double> lengths = {10, 14, 9, 16, 11, 13, 8, 12};
  const auto of_rank = [&](int rank, bool numbered, double ahead) {
    KinetoFile file(rank);
    double t = 1 * us_per_ms + ahead;
    for (std::size_t step = 0; step < lengths.size(); ++step, t += lengths[step - 1] * us_per_ms) {
      if (rank == 1 && step == 0) continue;
      const double end = t + lengths[step] * us_per_ms;
      const double arrival = end - (rank == 0 ? 3 : 1) * us_per_ms;
      file.cpu("user_annotation", "ProfilerStep#" + std::to_string(20 + step), t, end);
      file.gpu("kernel", "sgemm_a", 7, t, arrival);
      nlohmann::json args = {{"Collective name", "allreduce"},
                             {"In msg nelems", 1'000'000},
                             {"Group size", 2},
                             {"dtype", "Float"},
                             {"Process Group Name", "0"}};
      if (numbered) args["Seq"] = 500 + step;
      file.gpu("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20, arrival, end, args);
    }
    return file.text();
  };
  const TemporaryFolder folder;
  testing::write_text(folder / "rank0.json", of_rank(0, true, 0));
  testing::write_text(folder / "rank1.json", of_rank(1, true, 7.5e6));
  const auto run = analyze_run(folder.path());
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  const auto& row = metrics.collectives[0];
  EXPECT_EQ(row.count, 7U);
  EXPECT_DOUBLE_EQ(row.wait_us.value.value_or(-1), 1'000);
  EXPECT_DOUBLE_EQ(row.transfer_us, 1'000);
  EXPECT_DOUBLE_EQ(row.late_us.value.value_or(-1), 2'000);
  EXPECT_EQ(row.last_rank, 1);
  EXPECT_DOUBLE_EQ(row.algbw_gbps.value.value_or(-1), 4);
  // The first step is not idle time of rank 1, which did not record it.
  EXPECT_EQ(metrics.ranks[0].recorded, 93'000'000);
  EXPECT_EQ(metrics.ranks[1].recorded, 83'000'000);
  EXPECT_EQ(metrics.ranks[1].idle, 0);
  EXPECT_DOUBLE_EQ(metrics.share(Share::idle), 0);
  EXPECT_NEAR(metrics.load_balance.value.value_or(-1), (69.0 + 76) / 176 / (76.0 / 83), 1e-12);

  testing::write_text(folder / "rank0.json", of_rank(0, false, 0));
  testing::write_text(folder / "rank1.json", of_rank(1, false, 7.5e6));
  EXPECT_FALSE(analyze_run(folder.path()).metrics.collectives.at(0).wait_us.value);
}

// Two GPUs of a process compute by turns. Neither is busy more than half of the time.
TEST(KinetoForms, GpusOfOneProcessAreMeasuredEach) {
  KinetoFile file(0, 1);
  file.cpu("user_annotation", "ProfilerStep#5", 0, 10 * us_per_ms);
  const auto kernel = [&](int device, double start, double end) {
    file.span("kernel", "gemm", device, 7, start, end, {{"device", device}, {"stream", 7}});
  };
  kernel(0, 1 * us_per_ms, 6 * us_per_ms);
  kernel(1, 6 * us_per_ms, 11 * us_per_ms);
  kernel(1, 2 * us_per_ms, 4 * us_per_ms);
  const TemporaryFolder folder;
  testing::write_text(folder / "trace.json", file.text());
  const auto run = analyze_run(folder / "trace.json");
  const auto& rank = run.metrics.ranks.at(0);
  EXPECT_EQ(rank.process, "process 39 on GPUs 0, 1");
  ASSERT_THAT(rank.devices, SizeIs(2));
  EXPECT_EQ(rank.devices[0].second.compute, 5'000'000);
  EXPECT_EQ(rank.devices[1].second.compute, 7'000'000);
  EXPECT_EQ(rank.devices[1].second.idle, 3'000'000);
  EXPECT_DOUBLE_EQ(gpu_shares(run.metrics)->utilization, 0.6);
  EXPECT_DOUBLE_EQ(*run.metrics.parallel_efficiency.value, 0.6);
  EXPECT_EQ(rank.compute + rank.communication - rank.overlap + rank.other + rank.idle, rank.recorded);
  EXPECT_THAT(report_text(report_of({run}), false), HasSubstr("0: GPU 1"));
  const auto row = testing::json_of_run(run)["by_rank"][0];
  EXPECT_EQ(row["gpus"][1]["utilization"], 0.7);
  EXPECT_EQ(row["process"], rank.process);
}

TEST(KinetoForms, WorkWithoutATimeIsLeftOut) {
  auto file = ten_ms();
  file.gpu("kernel", "untimed", 7, 0, 0);
  for (const auto* time : {"", R"("ts":null,)"})
    file.add(nlohmann::json::parse(R"({"ph":"X","cat":"kernel","name":"sgemm","pid":0,"tid":7,)" +
                                   std::string(time) + R"("dur":5})"));
  const auto metrics = metrics_of(file.text());
  expect_ten_ms(metrics);
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("1 kernels and copies without a time are left out")));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("2 damaged events left out")));
}

// Without ranks in the files, the order of the GPUs is that of the ranks, or else that of the processes.
TEST(KinetoForms, RanksFollowGpusAndThenProcesses) {
  const auto file = [](int pid, int device) {
    auto trace = nlohmann::json::parse(ten_ms().text());
    trace.erase("distributedInfo");
    for (auto& event : trace["traceEvents"])
      if (event["pid"].is_number()) event["pid"] = event["pid"] == 0 ? device : pid;
    return trace.dump();
  };
  const TemporaryFolder folder;
  testing::write_text(folder / "node1_9999.pt.trace.json", file(9999, 1));
  testing::write_text(folder / "node1_10000.pt.trace.json", file(10000, 0));
  auto run = read_run(folder.path());
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].process, "process 10000 on GPU 0");
  EXPECT_EQ(run.ranks[1].process, "process 9999 on GPU 1");
  EXPECT_THAT(run.warnings, Contains(HasSubstr("by its GPU it is taken as rank 0")));
  testing::write_text(folder / "node1_9999.pt.trace.json", file(9999, 0));
  run = read_run(folder.path());
  EXPECT_EQ(run.ranks[0].process, "process 9999 on GPU 0");
  EXPECT_EQ(run.ranks[1].process, "process 10000 on GPU 0");
  EXPECT_THAT(report_text(report_of({analyze_run(folder.path())}), false),
              HasSubstr("rank 1: process 10000 on GPU 0"));
}

TEST(ChromeTrace, ProcessesWithTextsAsIdsAreNumberedByThem) {
  const TemporaryFolder folder;
  std::string text;
  for (const auto* pid : {"worker 10", "worker 9"})
    text += std::string(text.empty() ? "[" : ",") + R"({"ph":"X","cat":"forward","name":"f","pid":")" + pid +
            R"(","tid":1,"ts":0,"dur":10})";
  testing::write_text(folder / "t.json", text + "]");
  const auto run = read_run(folder / "t.json");
  ASSERT_THAT(run.ranks, SizeIs(2));
  EXPECT_EQ(run.ranks[0].process, "worker 9");
  EXPECT_EQ(run.ranks[1].process, "worker 10");
}

}  // namespace
}  // namespace farandole
