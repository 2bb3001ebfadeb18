#include "farandole/analyzer/model/training_log.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

constexpr std::size_t most_curves = 200, most_events = 1'000;
constexpr std::uintmax_t most_bytes = 128 << 20;  // Parsing them takes a few seconds.
constexpr double largest_value = 1e300;           // So that sums of values are finite.

void join(CurvePoint& point, const CurvePoint& next) {
  if (next.low < point.low) point.low = next.low, point.low_step = next.low_step;
  if (next.high > point.high) point.high = next.high, point.high_step = next.high_step;
  point.last_step = std::max(point.last_step, next.last_step);
  point.sum += next.sum;
  point.last = next.last;
  point.count += next.count;
}

// Readers look for these first.
int order_of(const NamedCurve& curve) {
  if (curve.name == "loss") return 0;
  if (curve.name == "eval_loss") return 1;
  if (curve.is_evaluation()) return 2;
  if (curve.name == "lr") return 3;
  if (curve.name == "samples_per_s") return 5;
  return curve.name == "step_ms" ? 6 : 4;
}

class LogReader {
 public:
  explicit LogReader(const std::filesystem::path& file) : file_(file) {}

  TrainingLog read() {
    std::error_code failure;
    const auto bytes = std::filesystem::file_size(file_, failure);
    const auto every = failure ? 1 : 1 + bytes / most_bytes;
    try {
      read_lines(file_, std::numeric_limits<std::uint64_t>::max(), [&](std::string_view line) {
        const bool is_event = line.find("\"event\"") != std::string_view::npos;
        if (lines_++ % every == 0 || is_event) take(line);
      });
    } catch (const Error& error) {
      warn(std::string(error.what()) + "; loss and metrics are unknown");
    }
    if (every > 1)
      warn(fmt::format("{} has {}: only one of {} lines was read, so that single values may be missing",
                       file_.string(), describe_bytes(static_cast<std::int64_t>(bytes)), every));
    if (damaged_ > 0)
      warn(fmt::format("{}: {} damaged line{} left out, the first is line {}", file_.string(), damaged_,
                       damaged_ == 1 ? "" : "s", first_damage_));
    if (too_many_)
      warn(fmt::format("{} has more than {} different keys; the others are left out", file_.string(),
                       most_curves));
    for (auto& [name, curve] : curves_)
      if (!curve.empty() || curve.not_finite() > 0) log_.curves.push_back({name, std::move(curve)});
    std::stable_sort(log_.curves.begin(), log_.curves.end(),
                     [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
    return std::move(log_);
  }

 private:
  void warn(std::string text) { log_.warnings.push_back(std::move(text)); }

  void take(std::string_view line) {
    const auto json = try_parse_json(line);
    const auto number = json.is_object() ? json.find("step") : json.end();
    if (!json.is_object() || number == json.end() || !number->is_number() ||
        !(std::abs(number->get<double>()) < 1e15)) {
      if (damaged_++ == 0) first_damage_ = lines_;
      return;
    }
    const auto step = number->get<std::int64_t>();
    if (json.contains("event")) return event(step, json);
    if (const auto cpu = json.find("cpu_percent"); cpu != json.end() && cpu->is_array()) return use(json);
    for (const auto& [key, value] : json.items())
      if (key != "step" && key != "epoch" && (value.is_number() || value.is_null())) add(key, step, value);
  }

  void add(const std::string& key, std::int64_t step, const Json& json) {
    const auto found = curves_.find(key);
    if (found == curves_.end() && curves_.size() >= most_curves) {
      too_many_ = true;
      return;
    }
    auto& curve = found == curves_.end() ? curves_[key] : found->second;
    const double value = json.is_null() ? std::nan("") : json.get<double>();  // JSON has no other NaN.
    if (std::abs(value) <= largest_value)
      curve.add(step, value);
    else
      curve.add_not_finite();
  }

  void event(std::int64_t step, const Json& json) {
    LogEvent event{step, std::nullopt};
    if (json["event"] == "rollback") {
      ++log_.rollbacks;
      const auto to = json.find("to_step");
      event.to_step = to != json.end() && to->is_number_integer() ? to->get<std::int64_t>() : 0;
    } else if (json["event"] == "skipped step") {
      ++log_.skipped_steps;
    } else {
      return;
    }
    if (log_.events.size() < most_events) log_.events.push_back(event);
  }

  void use(const Json& json) {
    log_.use.assign(json["cpu_percent"].size(), {});
    const auto column = [&](const char* key, std::optional<double> LoggedUse::*part) {
      const auto found = json.find(key);
      if (found == json.end() || !found->is_array()) return;
      for (std::size_t rank = 0; rank < std::min(found->size(), log_.use.size()); ++rank)
        if ((*found)[rank].is_number()) log_.use[rank].*part = (*found)[rank].get<double>();
    };
    column("cpu_percent", &LoggedUse::cpu_percent);
    column("memory_mib", &LoggedUse::memory_mib);
    column("read_mb", &LoggedUse::read_mb);
    column("written_mb", &LoggedUse::written_mb);
    column("gpu_percent", &LoggedUse::gpu_percent);
    column("gpu_memory_mib", &LoggedUse::gpu_memory_mib);
  }

  const std::filesystem::path& file_;
  TrainingLog log_;
  std::map<std::string, Curve> curves_;
  std::uint64_t lines_ = 0, damaged_ = 0, first_damage_ = 0;
  bool too_many_ = false;
};

}  // namespace

void Curve::add(std::int64_t step, double value) {
  while (!points_.empty() && points_.back().first_step > step) points_.pop_back();
  const CurvePoint point{step, step, step, step, value, value, value, value, 1};
  if (points_.empty()) first_ = value;
  if (!points_.empty() && points_.back().count < per_point_) return join(points_.back(), point);
  if (points_.size() == most_points) {
    for (std::size_t i = 0; i < most_points / 2; ++i) {
      points_[i] = points_[2 * i];
      join(points_[i], points_[2 * i + 1]);
    }
    points_.resize(most_points / 2);
    per_point_ *= 2;
  }
  points_.push_back(point);
}

const CurvePoint& Curve::lowest() const {
  return *std::min_element(points_.begin(), points_.end(),
                           [](const auto& a, const auto& b) { return a.low < b.low; });
}

const CurvePoint& Curve::highest() const {
  return *std::max_element(points_.begin(), points_.end(),
                           [](const auto& a, const auto& b) { return a.high < b.high; });
}

const Curve* TrainingLog::find(std::string_view name) const {
  for (const auto& curve : curves)
    if (curve.name == name && !curve.curve.empty()) return &curve.curve;
  return nullptr;
}

TrainingLog read_training_log(const std::filesystem::path& metrics_jsonl) {
  return LogReader(metrics_jsonl).read();
}

}  // namespace farandole
