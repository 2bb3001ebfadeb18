#include "farandole/base/run/goodput.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <utility>
#include <vector>

#include "farandole/base/run/remedies.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

using Part = Goodput::Part;

constexpr std::array<const char*, Goodput::parts> part_names = {"productive", "lost steps", "restarts",
                                                                "saving",     "restoring",  "start-up"};
constexpr std::array<const char*, Goodput::parts> part_keys = {"productive", "lost_steps", "restarts",
                                                               "saving",     "restoring",  "start_up"};

using Times = std::array<std::int64_t, Goodput::parts>;

// The clocks of launcher and ranks may be those of two hosts.
constexpr std::int64_t clock_error_ns = 1'000'000'000;

// Splits the time of a start. No value if its times contradict each other.
std::optional<Times> split_start(const RunStartTimes& start, bool is_last) {
  Times times{};
  const auto length = start.end_ns - start.begin_ns;
  const auto worked = std::clamp(start.worked_ns, start.begin_ns, std::max(start.begin_ns, start.end_ns));
  const auto stepped = start.first_step ? start.first_step_ns : worked;
  times[Part::restoring] = start.restoring_ns;
  times[Part::saving] = start.saving_ns;
  times[Part::start_up] = stepped - start.begin_ns - start.restoring_ns;
  // After the last work, a failed start only ends. The last one also writes its trace.
  times[is_last ? Part::start_up : Part::restarts] += start.end_ns - worked;
  if (start.lost_ns != 0) times[Part::lost_steps] = worked - std::max(start.lost_ns, stepped);
  times[Part::productive] = length - std::accumulate(times.begin(), times.end(), std::int64_t{0});
  const auto tolerance = std::max(clock_error_ns, length / 200);
  for (auto& time : times) {
    if (length < 0 || time < -tolerance) return std::nullopt;
    if (time < 0) *std::max_element(times.begin(), times.end()) += std::exchange(time, 0);
  }
  return times;
}

struct Gap {
  std::int64_t allocated_ns = 0, other_ns = 0;
};

Gap gap_between(const RunStartTimes& before, const RunStartTimes& after) {
  const auto whole = std::max<std::int64_t>(0, after.begin_ns - before.end_ns);
  if (!after.allocation.empty() && after.allocation == before.allocation) return {whole, 0};
  if (after.allocated_ns == 0) return {0, whole};
  const auto allocated = std::clamp<std::int64_t>(after.begin_ns - after.allocated_ns, 0, whole);
  return {allocated, whole - allocated};
}

std::string why_unknown(std::span<const RunStartTimes> starts) {
  if (starts.empty()) return "nothing is recorded about the run";
  if (starts.size() > 1 &&
      std::any_of(starts.begin(), starts.end(), [](const auto& start) { return start.counts_own_steps; }))
    return std::string(
               "its steps are numbered from 0 in each start, so steps that were done again are "
               "unknown; ") +
           remedy(Topic::number_steps, starts.back().kind);
  if (std::none_of(starts.begin(), starts.end(),
                   [](const auto& start) { return start.first_step.has_value() || !start.unknown.empty(); }))
    return "no step is recorded";
  return "";
}

std::string left_out_text(const std::vector<const RunStartTimes*>& left_out, std::size_t all) {
  if (left_out.empty()) return "";
  return fmt::format(
      "{} of {} starts {} not counted: {} ({}{})", left_out.size(), all, left_out.size() == 1 ? "is" : "are",
      left_out.front()->unknown.empty() ? "times contradict each other" : left_out.front()->unknown,
      left_out.front()->name, left_out.size() > 1 ? " to " + left_out.back()->name : "");
}

// Tenths of a percent that add up to 1000: the parts with the largest remainders are rounded up.
std::array<int, Goodput::parts> rounded(const Goodput& goodput) {
  std::array<int, Goodput::parts> tenths{};
  std::array<double, Goodput::parts> remainders{};
  int left = 1000;
  for (std::size_t i = 0; i < Goodput::parts; ++i) {
    const double exact = 1000 * goodput.fraction(static_cast<Part>(i));
    tenths[i] = static_cast<int>(exact);
    remainders[i] = exact - tenths[i];
    left -= tenths[i];
  }
  for (; left > 0; --left) {
    const auto largest = std::max_element(remainders.begin(), remainders.end());
    ++tenths[static_cast<std::size_t>(largest - remainders.begin())];
    *largest = -1;
  }
  return tenths;
}

}  // namespace

double Goodput::allocated_rank_s() const {
  return std::accumulate(rank_s.begin(), rank_s.end(), 0.0);
}

double Goodput::fraction(Part part) const {
  const double all = allocated_rank_s();
  return all > 0 ? rank_s[part] / all : 0;
}

Goodput goodput_of(std::span<const RunStartTimes> starts) {
  Goodput goodput;
  goodput.unknown = why_unknown(starts);
  if (!goodput.unknown.empty()) return goodput;
  std::vector<const RunStartTimes*> left_out;
  const RunStartTimes* before = nullptr;  // null if the start before is left out, so the gap is not known
  for (const auto& start : starts) {
    const auto times = start.unknown.empty() ? split_start(start, &start == &starts.back()) : std::nullopt;
    if (times) {
      const auto add = [&](std::size_t part, std::int64_t ns) {
        goodput.rank_s[part] += static_cast<double>(ns) * 1e-9 * static_cast<double>(start.ranks);
      };
      for (std::size_t part = 0; part < times->size(); ++part) add(part, (*times)[part]);
      const auto gap = before != nullptr ? gap_between(*before, start) : Gap{};
      add(Part::restarts, gap.allocated_ns);
      goodput.between_jobs_s += static_cast<double>(gap.other_ns) * 1e-9;
      ++goodput.starts;
    } else {
      left_out.push_back(&start);
    }
    before = times ? &start : nullptr;
  }
  goodput.left_out = left_out_text(left_out, starts.size());
  if (goodput.allocated_rank_s() <= 0)
    goodput.unknown = goodput.left_out.empty() ? "no time is recorded" : goodput.left_out;
  return goodput;
}

std::string goodput_text(const Goodput& goodput) {
  if (!goodput.unknown.empty()) return "unknown: " + goodput.unknown;
  const auto tenths = rounded(goodput);
  auto text = fmt::format("{:.1f} %", tenths[Part::productive] / 10.0);
  std::string minus;
  for (std::size_t i = Part::lost_steps; i < Goodput::parts; ++i)
    if (tenths[i] > 0) minus += fmt::format(" − {} {:.1f}", part_names[i], tenths[i] / 10.0);
  if (!minus.empty()) text += " = 100" + minus;
  if (goodput.starts > 1) text += fmt::format("; {} starts", goodput.starts);
  if (goodput.between_jobs_s >= 1)
    text += fmt::format("; {} more in the queue or between jobs", describe_clock(goodput.between_jobs_s));
  if (!goodput.left_out.empty()) text += "; " + goodput.left_out;
  return text;
}

Json goodput_json(const Goodput& goodput) {
  if (!goodput.unknown.empty()) return {{"unknown", goodput.unknown}};
  Json seconds;
  for (std::size_t i = 0; i < Goodput::parts; ++i) seconds[part_keys[i]] = goodput.rank_s[i];
  Json json = {{"fraction", goodput.fraction(Part::productive)},
               {"rank_seconds", std::move(seconds)},
               {"between_jobs_s", goodput.between_jobs_s},
               {"starts", goodput.starts}};
  if (!goodput.left_out.empty()) json["left_out"] = goodput.left_out;
  return json;
}

}  // namespace farandole
