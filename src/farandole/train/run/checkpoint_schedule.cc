#include "farandole/train/run/checkpoint_schedule.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// Until the first checkpoint has shown what one costs. With a long time, a job that is often killed would not
// get to its first checkpoint.
constexpr double first_automatic_seconds = 2;

std::optional<double> count_of(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  const auto count = parse_number<std::int64_t>(text.substr(0, text.size() - unit.size()));
  constexpr std::int64_t most = 1'000'000'000;
  return count && *count >= 1 && *count <= most ? std::optional(static_cast<double>(*count)) : std::nullopt;
}

}  // namespace

CheckpointInterval CheckpointInterval::parse(std::string_view text) {
  if (text == "auto") return {Kind::automatic, 0};
  if (text == "never") return {Kind::never, 0};
  if (const auto steps = count_of(text, "steps")) return {Kind::steps, *steps};
  if (const auto epochs = count_of(text, "epochs")) return {Kind::epochs, *epochs};
  const bool has_unit = !text.empty() && (text.back() < '0' || text.back() > '9');
  if (const auto seconds = parse_duration(text); seconds && has_unit && *seconds > 0)
    return {Kind::time, *seconds};
  throw UserError(fmt::format(
      "--checkpoint-every cannot be '{}'; give for example 500steps, 2epochs, 10min, 1h, auto or never",
      text));
}

double young_interval(double cost_seconds, double seconds_between_failures) {
  return std::sqrt(2 * cost_seconds * seconds_between_failures);
}

CheckpointSchedule::CheckpointSchedule(CheckpointInterval interval, double seconds_between_failures,
                                       std::int64_t step, double now)
    : interval_(interval),
      seconds_between_failures_(seconds_between_failures),
      first_step_(step),
      began_(now),
      saved_step_(step),
      saved_at_(now),
      seconds_(interval.kind == CheckpointInterval::Kind::automatic ? first_automatic_seconds
                                                                    : interval.amount) {}

bool CheckpointSchedule::due(std::int64_t step, double now) const {
  switch (interval_.kind) {
    case CheckpointInterval::Kind::steps: {
      const auto every = static_cast<std::int64_t>(interval_.amount);
      return step / every > saved_step_ / every;
    }
    case CheckpointInterval::Kind::time:
    case CheckpointInterval::Kind::automatic:
      return now - saved_at_ >= seconds_;
    default:
      return false;
  }
}

std::int64_t CheckpointSchedule::next(std::int64_t step, double now) const {
  switch (interval_.kind) {
    case CheckpointInterval::Kind::steps: {
      const auto every = static_cast<std::int64_t>(interval_.amount);
      return (step / every + 1) * every;
    }
    case CheckpointInterval::Kind::time:
    case CheckpointInterval::Kind::automatic: {
      // Half of the remaining steps, because they may become slower.
      const double per_step =
          (now - began_) / static_cast<double>(std::max<std::int64_t>(1, step - first_step_));
      const double steps = per_step > 0 ? (saved_at_ + seconds_ - now) / per_step / 2 : 1;
      return step + std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(steps, 1e9)));
    }
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

CheckpointSchedule::Answer CheckpointSchedule::ask(std::int64_t step, bool idle, double now) {
  if (!due(step, now)) return {false, next(step, now)};
  return {idle, step + 1};
}

void CheckpointSchedule::saved(std::int64_t step, double now, double cost) {
  saved_step_ = step;
  saved_at_ = now;
  if (interval_.kind == CheckpointInterval::Kind::automatic)
    seconds_ = std::max(1.0, young_interval(cost, seconds_between_failures_));
}

}  // namespace farandole
