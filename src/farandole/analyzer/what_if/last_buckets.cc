#include "farandole/analyzer/what_if/last_buckets.h"

#include <algorithm>
#include <map>

namespace farandole {
namespace {

constexpr std::size_t least_kept_steps = 3;  // With the last buckets; otherwise no steps are left out.

std::size_t step_at(const std::vector<Interval>& steps, std::int64_t time) {
  const auto behind = std::upper_bound(steps.begin(), steps.end(), time,
                                       [](std::int64_t t, const Interval& step) { return t < step.start; });
  return behind == steps.begin() ? 0 : static_cast<std::size_t>(behind - steps.begin()) - 1;
}

}  // namespace

LastBuckets last_buckets(const RunMetrics& metrics,
                         const std::vector<std::optional<std::size_t>>& bucket_of_name) {
  using Plan = std::map<std::size_t, std::uint64_t>;  // Bytes, by bucket.
  const auto& steps = metrics.window.steps;
  std::vector<Plan> of_step(steps.size());
  for (const auto& match : metrics.matches.matches)
    if (const auto bucket = bucket_of_name[match.name])
      of_step[step_at(steps, match.last_arrival)].insert_or_assign(*bucket, match.bytes);
  LastBuckets result;
  auto last = std::find_if(of_step.rbegin(), of_step.rend(), [](const Plan& plan) { return !plan.empty(); });
  if (last == of_step.rend()) return result;
  // The last step of the window may be incomplete.
  const bool cut_off =
      last == of_step.rbegin() && last + 1 != of_step.rend() && last[1].size() > last->size();
  const Plan& plan = cut_off ? last[1] : *last;
  for (const auto& [bucket, bytes] : plan)
    if (bucket == result.bytes.size()) result.bytes.push_back(bytes);
  for (std::size_t i = 0; i < of_step.size(); ++i)
    for (const auto& [bucket, bytes] : of_step[i])
      if (const auto same = plan.find(bucket); same == plan.end() || same->second != bytes)
        result.first_step = i + 1;
  if (result.first_step + least_kept_steps > of_step.size()) result.first_step = 0;
  return result;
}

}  // namespace farandole
