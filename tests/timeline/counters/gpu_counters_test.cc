#include "farandole/timeline/counters/gpu_counters.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace farandole {
namespace {

// With the test double of NVML (gpu/double/nvml.cc).
class GpuCountersOfDouble : public testing::Test {
 protected:
  GpuCountersOfDouble() { ::setenv("FARANDOLE_NVML_LIBRARY", FARANDOLE_NVML_DOUBLE, 1); }
  ~GpuCountersOfDouble() override {
    ::unsetenv("FARANDOLE_NVML_LIBRARY");
    ::unsetenv("NVML_DOUBLE_FAIL");
  }
};

TEST_F(GpuCountersOfDouble, ReadTheDeviceWhateverItsName) {
  for (const char* const name : {"0", "0000:1b:00.0", "GPU-aaaa"}) {
    const auto counters = GpuCounters::open(name);
    ASSERT_NE(counters, nullptr) << name;
    const auto sample = counters->sample();
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->utilization_percent, 97);
    EXPECT_EQ(sample->memory_mib, 30 * 1024);
    EXPECT_EQ(sample->power_w, 412.5);
    EXPECT_EQ(sample->celsius, 61);
  }
}

TEST_F(GpuCountersOfDouble, LeaveOutWhatTheDeviceDoesNotGive) {
  const auto sample = GpuCounters::open("GPU-bbbb")->sample();
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->utilization_percent, 12);
  EXPECT_EQ(sample->power_w, std::nullopt);
  EXPECT_EQ(sample->celsius, 61);
}

TEST_F(GpuCountersOfDouble, SayWhetherThereIsADevice) {
  EXPECT_TRUE(GpuCounters::any_device());
  ::setenv("NVML_DOUBLE_EMPTY", "1", 1);
  EXPECT_FALSE(GpuCounters::any_device());
  ::unsetenv("NVML_DOUBLE_EMPTY");
  ::setenv("NVML_DOUBLE_FAIL", "1", 1);
  EXPECT_FALSE(GpuCounters::any_device());
}

TEST_F(GpuCountersOfDouble, AreMissingWithoutTheDeviceOrTheDriver) {
  for (const char* const name : {"", "2", "GPU-cccc", "0000:00:00.0", "nonsense"})
    EXPECT_EQ(GpuCounters::open(name), nullptr) << name;
  ::setenv("NVML_DOUBLE_FAIL", "1", 1);
  EXPECT_EQ(GpuCounters::open("0"), nullptr);
  ::setenv("FARANDOLE_NVML_LIBRARY", "libm.so.6", 1);
  EXPECT_EQ(GpuCounters::open("0"), nullptr);
}

}  // namespace
}  // namespace farandole
