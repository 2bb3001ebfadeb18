#include "farandole/analyzer/metrics/gpu_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "analyzer/json_report.h"
#include "analyzer/metrics_identities.h"
#include "lane.h"

#include "farandole/analyzer/report/formatting.h"

namespace farandole {
namespace {

using testing::TraceBuilder;

constexpr std::int64_t us = 1000;

NamedSpan kernel(std::int64_t start, std::int64_t end, Category category = Category::gpu_kernel) {
  NamedSpan span{.start = start, .end = end};
  span.category = category;
  return span;
}
NamedSpan launched(std::int64_t launch, std::int64_t start, std::int64_t end,
                   Category category = Category::gpu_kernel) {
  auto span = kernel(start, end, category);
  span.launch = launch;
  span.launch_is = NamedSpan::Launch::time;
  return span;
}

std::int64_t of(const IdleTimes& times, IdleCause cause) {
  return times[static_cast<std::size_t>(cause)];
}

TEST(IdleCauses, AreThoseOfTheTrainingThreadIfWorkWasLaunchedLate) {
  const std::vector<CategorySpan> pieces = {{100 * us, 130 * us, Category::data},
                                            {130 * us, 150 * us, Category::wait},
                                            {150 * us, 155 * us, Category::communication},
                                            {155 * us, 162 * us, Category::checkpoint},
                                            {162 * us, 190 * us, Category::forward}};
  const auto times =
      idle_times({kernel(0, 100 * us), launched(180 * us, 200 * us, 300 * us)}, pieces, {0, 300 * us});
  EXPECT_EQ(of(times, IdleCause::data), 30 * us);
  EXPECT_EQ(of(times, IdleCause::collective), 25 * us);
  EXPECT_EQ(of(times, IdleCause::disk), 7 * us);
  EXPECT_EQ(of(times, IdleCause::host), 38 * us);
}

TEST(IdleCauses, OfQueuedWorkDependOnTheGapAndTheWork) {
  const std::vector<CategorySpan> pieces = {{0, 1000 * us, Category::data}};
  const auto times = idle_times(
      {kernel(0, 10 * us), launched(5 * us, 12 * us, 20 * us),
       launched(6 * us, 50 * us, 60 * us, Category::communication), launched(7 * us, 100 * us, 110 * us)},
      pieces, {0, 110 * us});
  EXPECT_EQ(of(times, IdleCause::queue), 2 * us);
  EXPECT_EQ(of(times, IdleCause::collective), 30 * us);
  EXPECT_EQ(of(times, IdleCause::other), 40 * us);
  EXPECT_EQ(of(times, IdleCause::data), 0);
}

TEST(IdleCauses, FollowFromTheGapIfTheTraceDoesNotRecordLaunches) {
  const auto times = idle_times({kernel(0, 10 * us), kernel(20 * us, 30 * us), kernel(41 * us, 50 * us)}, {},
                                {-5 * us, 60 * us});
  EXPECT_EQ(of(times, IdleCause::queue), 10 * us);
  EXPECT_EQ(of(times, IdleCause::host), 5 * us + 11 * us);
  EXPECT_EQ(of(times, IdleCause::other), 10 * us);  // Nothing is known of the work that follows.
}

TEST(IdleCauses, AddUpToTheTimeWithoutWork) {
  std::mt19937_64 random(seed(3));
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<NamedSpan> work;
    std::vector<CategorySpan> spans;
    for (auto left = below(40); left > 0; --left) {
      const auto start = below(1'000'000);
      const auto category = below(3) == 0 ? Category::communication : Category::gpu_kernel;
      work.push_back(below(2) == 0 ? kernel(start, start + below(40'000), category)
                                   : launched(start - below(60'000), start, start + below(40'000), category));
    }
    std::ranges::sort(work, {}, &NamedSpan::start);
    for (auto left = below(40); left > 0; --left) {
      const auto start = below(1'000'000);
      spans.push_back({start, start + below(100'000), static_cast<Category>(below(12))});
    }
    const auto begin = below(500'000);
    const Interval window{begin, begin + below(600'000)};
    const auto times = idle_times(work, innermost(spans), window);
    std::vector<Interval> busy;
    for (const auto& span : work) busy.push_back({span.start, span.end});
    const auto idle =
        window.end - window.start - intersect(IntervalSet(std::move(busy)), IntervalSet({window})).measure();
    EXPECT_EQ(std::accumulate(times.begin(), times.end(), std::int64_t{0}), idle) << "round " << round;
    for (const auto time : times) EXPECT_GE(time, 0);
  }
}

// Ten steps of 10 ms; the first one is warm-up. In each, two kernels of 3 and 1 ms, a copy of 2 MB in 1 ms
// and a fill. "rare" runs in the first step only.
TraceBuilder training() {
  constexpr auto ms = TraceBuilder::ms;
  TraceBuilder trace(1);
  trace.thread(0, 2, "GPU 0 stream 7");
  trace.thread(0, 3, "NVTX");
  for (std::int64_t step = 0; step < 10; ++step) {
    const auto at = step * 10 * ms;
    trace.step(0, step, at, at + 10 * ms);
    trace.span(0, 0, "data", at + 4 * ms, at + 6 * ms);
    trace.span(0, 0, "forward", at + 6 * ms, at + 9 * ms);
    trace.span(0, 3, "other", at, at + 2 * ms, {}, "attention");
    const auto gpu = [&](const char* category, const char* name, std::int64_t from, std::int64_t to,
                         nlohmann::json args) {
      args["step"] = step;
      trace.span(0, 2, category, at + from, at + to, args, name);
    };
    gpu("gpu_kernel", "at::gemm<float>", 0, 3 * ms, {{"phase", "forward"}});
    gpu("gpu_kernel", "at::gemm<float>", 3 * ms, 4 * ms, {{"phase", "backward"}, {"queued_us", 2000.0}});
    gpu("gpu_kernel", step == 0 ? "rare" : "add", 7 * ms, 8 * ms, {{"queued_us", 1500.0}});
    gpu("gpu_memcpy", "copy host to device", 8 * ms, 9 * ms, {{"bytes", 2'000'000}});
    gpu("gpu_memcpy", "set memory", 9 * ms, 10 * ms, nlohmann::json::object());
  }
  return trace;
}

TEST(GpuWork, IsThatOfTheWindowByNamePhaseAndRange) {
  const auto metrics = testing::measure_trace(training());
  ASSERT_EQ(metrics.kernels.size(), 2U);  // Without the one of the warm-up.
  const auto &gemm = metrics.kernels[0], &add = metrics.kernels[1];
  EXPECT_EQ(gemm.name, "at::gemm<float>");
  EXPECT_EQ(gemm.calls, 18U);
  EXPECT_NEAR(gemm.ns, 36e6, 1);
  EXPECT_NEAR(gemm.share, 0.8, 1e-9);
  EXPECT_NEAR(gemm.by_phase[static_cast<std::size_t>(Phase::forward)], 27e6, 1);
  EXPECT_NEAR(gemm.by_phase[static_cast<std::size_t>(Phase::backward)], 9e6, 1);
  // Launched 1 ms after the begin of the step.
  ASSERT_EQ(gemm.by_range.size(), 1U);
  EXPECT_EQ(gemm.by_range[0].first, "attention");
  EXPECT_NEAR(gemm.by_range[0].second, 9e6, 1);
  EXPECT_EQ(add.name, "add");
  EXPECT_TRUE(add.by_range.empty());
  EXPECT_NEAR(gemm.share + add.share, 1, 1e-9);
  ASSERT_EQ(metrics.copies.size(), 2U);
  EXPECT_EQ(metrics.copies[0].kind, "host to device");
  EXPECT_EQ(metrics.copies[0].calls, 9U);
  EXPECT_NEAR(metrics.copies[0].bytes, 18e6, 1);
  EXPECT_NEAR(metrics.copies[0].bytes / metrics.copies[0].bytes_ns, 2, 1e-9);  // GB/s
  EXPECT_EQ(metrics.copies[1].kind, "memory set");
  // Between 4 and 7 ms the GPU waits for data until 6, and then for the launch, which comes at 5.5 + 0.
  ASSERT_TRUE(metrics.ranks[0].gpu);
  const auto& causes = metrics.ranks[0].gpu->idle_causes;
  EXPECT_EQ(of(causes, IdleCause::data), 9 * 2 * TraceBuilder::ms);
  EXPECT_EQ(of(causes, IdleCause::host), 9 * TraceBuilder::ms);
  EXPECT_EQ(std::accumulate(causes.begin(), causes.end(), std::int64_t{0}), metrics.ranks[0].gpu->idle);
}

TEST(GpuWork, IsInEachFormOfTheReport) {
  const TemporaryFolder folder;
  training().write_run(folder / "run", {});
  const Report report = report_of([&] {
    std::vector<RunReport> runs;
    runs.push_back(analyze_run(folder / "run"));
    return runs;
  }());
  const auto text = report_text(report, false);
  EXPECT_THAT(text, ::testing::HasSubstr("idle 30.0: data 20.0, host wait 10.0"));
  EXPECT_THAT(text, ::testing::ContainsRegex("gemm +18 +36.00 ms +80.0 % +forward 75 % +attention"));
  EXPECT_THAT(text, ::testing::ContainsRegex("host to device +9 +9.00 ms +18.00 MB +2.00"));
  const auto html = report_html(report, folder / "report.html");
  EXPECT_THAT(html, ::testing::HasSubstr("idle 30.0: data 20.0, host wait 10.0"));
  EXPECT_THAT(html, ::testing::HasSubstr("forward 75 %"));
  const auto json = testing::json_report(report)["runs"][0];
  EXPECT_EQ(json["gpu_kernels"][0]["name"], "at::gemm<float>");
  EXPECT_EQ(json["gpu_kernels"][0]["launched_by"][0]["name"], "attention");
  EXPECT_TRUE(json["gpu_kernels"][1]["phases_s"].contains("unknown"));
  EXPECT_EQ(json["gpu_copies"][1]["kind"], "memory set");
  EXPECT_TRUE(json["gpu_copies"][1]["bytes"].contains("unknown"));
  EXPECT_NEAR(json["gpu"]["idle_causes"]["host_wait"].get<double>(), 0.1, 1e-9);
}

TEST(GpuWork, HasShortNamesInTables) {
  EXPECT_EQ(kernel_text("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN"),
            "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN");
  EXPECT_EQ(kernel_text("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous "
                        "namespace)::OpaqueType<4u>, unsigned int, 1, 128, 1>(unsigned int)"),
            "CatArrayBatchedCopy");
  EXPECT_EQ(
      kernel_text("at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, "
                  "at::native::func_wrapper_t<float, at::native::sum_functor<c10::BFloat16, float, "
                  "float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int> >"),
      "reduce_kernel<sum_functor>");
  EXPECT_EQ(
      kernel_text("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
                  "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>)"),
      "elementwise<CUDAFunctor_add>");
  EXPECT_EQ(
      kernel_text("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(x::Params)"),
      "cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4");
  EXPECT_EQ(kernel_text("ncclDevKernel_AllReduce_Sum_f32_RING_LL(bucket 3)"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(bucket 3)");
  EXPECT_EQ(kernel_text("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  for (const auto* odd : {"", "<", "(", "a<", "::", "a<b", "void ", "x<>", "a::<b>", ">"})
    EXPECT_NO_THROW(kernel_text(odd)) << odd;
}

}  // namespace
}  // namespace farandole
