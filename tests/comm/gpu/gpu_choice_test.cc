#include "farandole/comm/gpu/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using Visible = std::vector<VisibleGpus>;

std::vector<int> choices(const Visible& visible, int ranks_per_gpu = 1) {
  std::vector<int> result;
  for (std::size_t r = 0; r < visible.size(); ++r)
    result.push_back(choose_gpu(visible, static_cast<int>(r), "node07", ranks_per_gpu));
  return result;
}

std::string refusal(const Visible& visible, int ranks_per_gpu = 1) {
  try {
    choices(visible, ranks_per_gpu);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(GpuChoice, OneGpuForEachTaskAndAllGpusForAllTasksBothWork) {
  using testing::ElementsAre;
  EXPECT_THAT(choices({{8, "a"}}), ElementsAre(0));
  EXPECT_THAT(choices({{1, "a"}, {1, "b"}, {1, "c"}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(choices({{2, "a"}, {2, "c"}}), ElementsAre(0, 0));
  EXPECT_THAT(choices({{4, "a"}, {4, "a"}, {4, "a"}}), ElementsAre(0, 1, 2));
}

TEST(GpuChoice, RefusesMoreRanksThanGpus) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal({{2, "a"}, {2, "a"}, {2, "a"}}), HasSubstr("node07 has 2 GPUs for 3 ranks"));
  EXPECT_THAT(refusal({{1, "a"}, {1, "a"}}), HasSubstr("node07 has 1 GPU for 2 ranks"));
  EXPECT_THAT(refusal({{2, "a"}, {2, "a"}, {2, "a"}}), HasSubstr("--ranks-per-gpu 2"));
  EXPECT_THAT(refusal({{1, "a"}, {1, "b"}, {1, "b"}}), HasSubstr("some see the same ones"));
  EXPECT_THAT(refusal({{4, "a"}, {2, "a"}}), HasSubstr("some see the same ones"));
}

TEST(GpuChoice, RanksShareGpusIfTheyMay) {
  using testing::ElementsAre, testing::HasSubstr;
  EXPECT_THAT(choices({{1, "a"}, {1, "a"}}, 2), ElementsAre(0, 0));
  EXPECT_THAT(choices({{2, "a"}, {2, "a"}, {2, "a"}}, 2), ElementsAre(0, 0, 1));
  EXPECT_THAT(choices({{1, "a"}, {1, "a"}, {1, "b"}}, 2), ElementsAre(0, 0, 0));
  EXPECT_THAT(choices({{1, "a"}, {1, "b"}}, 4), ElementsAre(0, 0));
  EXPECT_THAT(refusal({{1, "a"}, {1, "a"}, {1, "a"}}, 2), HasSubstr("node07 has 1 GPU for 3 ranks"));
  EXPECT_THAT(refusal({{1, "a"}, {1, "b"}, {1, "b"}, {1, "b"}}, 2), HasSubstr("some see the same ones"));
}

}  // namespace
}  // namespace farandole
