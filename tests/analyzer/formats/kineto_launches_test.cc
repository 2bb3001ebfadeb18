// What launched the kernels in traces of PyTorch's profiler, and why GPUs are idle there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/kineto_file.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {
namespace {

using testing::KinetoFile;

// Modules and annotations on thread 39, which calls backward; autograd's thread 40 launches its kernels.
class Launches {
 public:
  Launches() : file_(0, 1) {}

  void host(const std::string& category, const std::string& name, int thread, double start, double end) {
    file_.span(category, name, 39, thread, start, end);
  }
  void launch(int thread, double at, int number, const std::string& name = "cudaLaunchKernel") {
    file_.span("cuda_runtime", name, 39, thread, at, at + 2, {{"cbid", 211}, {"correlation", number}});
  }
  void kernel(const std::string& name, double start, double end, int number,
              const std::string& category = "kernel", nlohmann::json args = nlohmann::json::object()) {
    args["correlation"] = number;
    file_.gpu(category, name, 7, start, end, args);
  }
  RunMetrics measured() const {
    const TemporaryFolder folder;
    testing::write_text(folder / "rank0.pt.trace.json", file_.text());
    return measure(read_run(folder / "rank0.pt.trace.json"));
  }

 private:
  KinetoFile file_;
};

double of(const KernelRow& row, Phase phase) {
  return row.by_phase[static_cast<std::size_t>(phase)] * 1e-3;  // µs
}

TEST(KinetoLaunches, GiveKernelsPhasesAndModules) {
  Launches trace;
  trace.host("user_annotation", "ProfilerStep#3", 39, 0, 1000);
  trace.host("python_function", "train.py(12): main", 39, 0, 1000);
  trace.host("python_function", "nn.Module: Net_0", 39, 100, 300);
  trace.host("python_function", "nn.Module: Linear_1", 39, 150, 200);
  trace.host("cpu_op", "aten::linear", 39, 151, 199);
  trace.launch(39, 160, 11);
  trace.launch(39, 250, 12);  // In Net_0, outside of Linear_1 and of all operators.
  trace.host("user_annotation", "backward", 39, 400, 600);
  trace.host("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 40, 420, 500);
  trace.launch(40, 430, 13);
  trace.launch(39, 660, 15, "cudaMemcpyAsync");
  trace.kernel("gemm", 170, 270, 11);
  trace.kernel("gemm", 270, 280, 12);
  trace.kernel("gemm", 440, 470, 13);
  trace.kernel("gemm", 600, 610, 14);  // Its launch is not in the trace.
  trace.kernel("Memcpy DtoH (Device -> Pinned)", 670, 680, 15, "gpu_memcpy", {{"bytes", 1000}});
  const auto metrics = trace.measured();
  ASSERT_EQ(metrics.kernels.size(), 1U);
  const auto& gemm = metrics.kernels[0];
  EXPECT_EQ(gemm.calls, 4U);
  EXPECT_DOUBLE_EQ(of(gemm, Phase::forward), 100);
  EXPECT_DOUBLE_EQ(of(gemm, Phase::backward), 30);
  EXPECT_DOUBLE_EQ(of(gemm, Phase::other), 10);
  ASSERT_EQ(gemm.by_range.size(), 3U);
  EXPECT_EQ(gemm.by_range[0], std::pair(std::string("Linear_1"), 100e3));
  EXPECT_EQ(gemm.by_range[1], std::pair(std::string("backward"), 30e3));
  EXPECT_EQ(gemm.by_range[2], std::pair(std::string("Net_0"), 10e3));
  ASSERT_EQ(metrics.copies.size(), 1U);
  EXPECT_EQ(metrics.copies[0].kind, "device to host");
  EXPECT_DOUBLE_EQ(metrics.copies[0].bytes, 1000);
}

// As in Holistic Trace Analysis: the host is late if the launch came after the GPU was free.
TEST(KinetoLaunches, TellALateHostFromAQueue) {
  Launches trace;
  trace.host("cpu_op", "aten::mm", 39, 0, 500);
  trace.launch(39, 1, 1);
  trace.launch(39, 10, 2);
  trace.launch(39, 20, 3);
  trace.launch(39, 150, 4);
  trace.launch(39, 150, 4, "cuLaunchKernel");  // The driver's call within the runtime's.
  trace.host("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 39, 205, 240);
  trace.launch(39, 250, 5);
  trace.kernel("a", 10, 50, 1);
  trace.kernel("b", 53, 60, 2);    // 3 µs: queued
  trace.kernel("c", 90, 100, 3);   // 30 µs: queued, but late for another reason
  trace.kernel("d", 160, 200, 4);  // 60 µs: launched late
  trace.kernel("e", 260, 270, 5);  // 60 µs: launched late, and for 35 of them the host fetched data
  const auto metrics = trace.measured();
  ASSERT_TRUE(metrics.ranks[0].gpu);
  EXPECT_THAT(metrics.ranks[0].gpu->idle_causes, ::testing::ElementsAre(85'000, 35'000, 0, 0, 3'000, 30'000));
  EXPECT_EQ(metrics.ranks[0].gpu->idle, 153'000);
}

}  // namespace
}  // namespace farandole
