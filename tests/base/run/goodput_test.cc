#include "farandole/base/run/goodput.h"

#include <gmock/gmock.h>
#include <numeric>
#include <random>
#include <vector>

#include "farandole/base/text/json.h"

namespace farandole {
namespace {

using Part = Goodput::Part;
using testing::HasSubstr;

constexpr std::int64_t second = 1'000'000'000;

// A start with the times of its parts, in seconds; work that is done again comes last.
struct PartsOfStart {
  double start_up = 10, restoring = 2, productive = 100, saving = 3, lost = 0, tail = 0;
};

std::int64_t ns(double seconds) {
  return static_cast<std::int64_t>(seconds * second);
}

// Adds a start that begins at `begin_ns`.
RunStartTimes start_of(const PartsOfStart& parts, std::int64_t begin_ns, std::int64_t ranks = 2) {
  RunStartTimes start;
  start.name = "a start";
  start.ranks = ranks;
  start.begin_ns = begin_ns;
  start.allocation = "one";
  start.restoring_ns = ns(parts.restoring);
  start.saving_ns = ns(parts.saving);
  start.first_step = 0;
  start.first_step_ns = begin_ns + ns(parts.start_up + parts.restoring);
  const auto useful_ns = start.first_step_ns + ns(parts.productive + parts.saving);
  if (parts.lost > 0) start.lost_ns = useful_ns;
  start.worked_ns = useful_ns + ns(parts.lost);
  start.end_ns = start.worked_ns + ns(parts.tail);
  return start;
}

TEST(Goodput, IsTheProductivePartOfOneStart) {
  const std::vector starts{
      start_of({.start_up = 3, .restoring = 0, .productive = 95, .saving = 1, .tail = 1}, second)};
  const auto goodput = goodput_of(starts);
  EXPECT_EQ(goodput_text(goodput), "95.0 % = 100 − saving 1.0 − start-up 4.0");
  EXPECT_NEAR(goodput.allocated_rank_s(), 200, 1e-6);
}

TEST(Goodput, SubtractsWhatFailuresCost) {
  std::vector starts{
      start_of({.start_up = 10, .restoring = 0, .productive = 600, .saving = 4, .lost = 20, .tail = 6}, 0)};
  starts.push_back(start_of({.start_up = 10, .restoring = 5, .productive = 340, .saving = 1, .tail = 2},
                            starts[0].end_ns + 2 * second));
  const auto goodput = goodput_of(starts);
  EXPECT_EQ(
      goodput_text(goodput),
      "94.0 % = 100 − lost steps 2.0 − restarts 0.8 − saving 0.5 − restoring 0.5 − start-up 2.2; 2 starts");
  const auto json = goodput_json(goodput);
  EXPECT_NEAR(json["fraction"].get<double>(), 0.94, 1e-9);
  EXPECT_NEAR(json["rank_seconds"]["lost_steps"].get<double>(), 40, 1e-6);
}

// Kills and requeues at random: each part must be found again, and together they are the allocated time.
TEST(Goodput, AddsUpOverRandomHistories) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto some = [&](double most) { return std::uniform_real_distribution(0.0, most)(random); };
    std::array<double, Goodput::parts> expected{};
    double between_jobs = 0, allocated = 0;
    std::vector<RunStartTimes> starts;
    const int count = 1 + static_cast<int>(random() % 12);
    std::int64_t at = 1'700'000'000 * second;
    for (int i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      const PartsOfStart parts{some(30), some(5), some(3000), some(60), last ? 0 : 1 + some(300), some(20)};
      const auto ranks = 1 + static_cast<std::int64_t>(random() % 8);
      double gap = 0, queue = 0;
      std::string allocation = "job 1 start " + std::to_string(i);
      if (i > 0) {
        gap = some(40);
        if (random() % 2 == 0)
          allocation = starts.back().allocation;  // the launcher starts the ranks again
        else
          queue = some(4000);
      }
      at += ns(queue) + ns(gap);
      auto start = start_of(parts, at, ranks);
      start.allocation = allocation;
      start.allocated_ns =
          i > 0 && allocation == starts.back().allocation ? starts.back().allocated_ns : at - ns(gap);
      const auto n = static_cast<double>(ranks);
      expected[Part::productive] += n * parts.productive;
      expected[Part::lost_steps] += n * parts.lost;
      expected[Part::restarts] += n * gap + (last ? 0 : n * parts.tail);
      expected[Part::saving] += n * parts.saving;
      expected[Part::restoring] += n * parts.restoring;
      expected[Part::start_up] += n * (parts.start_up + (last ? parts.tail : 0));
      between_jobs += queue;
      allocated += n * (static_cast<double>(start.end_ns - start.begin_ns) * 1e-9 + gap);
      at = start.end_ns;
      starts.push_back(start);
    }
    const auto goodput = goodput_of(starts);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << goodput_text(goodput));
    ASSERT_EQ(goodput.unknown + goodput.left_out, "");
    EXPECT_NEAR(goodput.allocated_rank_s(), allocated, 0.005 * allocated);
    EXPECT_NEAR(goodput.between_jobs_s, between_jobs, 1e-3);
    for (std::size_t part = 0; part < Goodput::parts; ++part)
      EXPECT_NEAR(goodput.rank_s[part], expected[part], 1e-5 * allocated) << part;
  }
}

TEST(Goodput, HasRoundedPartsThatAddUp) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    const auto some = [&] { return std::uniform_real_distribution(1.0, 50.0)(random); };
    const std::vector starts{start_of({some(), some(), some(), some(), some(), some()}, 0)};
    const auto text = goodput_text(goodput_of(starts));
    double sum = 0, goodput = 0;
    std::size_t at = 0;
    for (const char* name : {"lost steps ", "saving ", "restoring ", "start-up "})
      if ((at = text.find(name)) != text.npos) sum += std::stod(text.substr(at + std::string(name).size()));
    goodput = std::stod(text);
    EXPECT_NEAR(goodput + sum, 100, 1e-6) << text;
  }
}

TEST(Goodput, DoesNotGuess) {
  EXPECT_THAT(goodput_text(goodput_of({})), HasSubstr("unknown: nothing is recorded"));
  std::vector starts{start_of({}, 0), start_of({}, 500 * second), start_of({}, 1000 * second)};
  starts[0].unknown = "there is no flight recorder of rank 0";
  starts[0].name = "starts/0001";
  auto goodput = goodput_of(starts);
  EXPECT_EQ(goodput.left_out,
            "1 of 3 starts is not counted: there is no flight recorder of rank 0 (starts/0001)");
  EXPECT_EQ(goodput.starts, 2u);
  EXPECT_THAT(goodput_text(goodput), HasSubstr(goodput.left_out));
  EXPECT_TRUE(goodput_json(goodput).contains("left_out"));
  starts[2].worked_ns = starts[2].begin_ns;  // before its steps
  goodput = goodput_of(starts);
  EXPECT_EQ(goodput.starts, 1u);
  starts.assign(2, start_of({}, 0));
  for (auto& start : starts) start.first_step.reset();
  EXPECT_EQ(goodput_of(starts).unknown, "no step is recorded");
  EXPECT_TRUE(goodput_json(goodput_of(starts)).contains("unknown"));
  starts.assign(2, start_of({}, 0));
  starts[1].counts_own_steps = true;
  EXPECT_THAT(goodput_of(starts).unknown, HasSubstr("session.set_step(n) or farandole::Run"));
  starts[1].kind = ProgramKind::python;
  EXPECT_THAT(goodput_of(starts).unknown, HasSubstr("farandole.record.step(n)"));
}

// The clocks of two hosts differ.
TEST(Goodput, AcceptsSmallContradictions) {
  auto start = start_of({.start_up = 0, .restoring = 0}, 100 * second);
  start.first_step_ns -= second / 10;
  const auto goodput = goodput_of(std::vector{start});
  EXPECT_EQ(goodput.left_out, "");
  EXPECT_EQ(goodput.rank_s[Part::start_up], 0);
}

}  // namespace
}  // namespace farandole
