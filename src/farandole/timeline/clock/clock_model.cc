#include "farandole/timeline/clock/clock_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::int64_t burst_gap_ns = 1'000'000'000;
// Far above the drift of any oscillator (10 to 100 ppm). A steeper line comes from a clock that was changed.
constexpr double steepest_drift = 1e-3;
// NTP and heat change a drift that was measured.
constexpr double drift_changes = 1e-6;

std::int64_t half_of(const RoundTrip& trip) {
  return (trip.receive_ns - trip.send_ns) / 2;
}

}  // namespace

struct ClockModel::Point {
  std::int64_t at_ns;
  std::int64_t offset_ns;
  std::int64_t half_ns;  // upper bound of the error of the offset

  static Point of(const RoundTrip& trip) {
    const std::int64_t half = half_of(trip);
    const std::int64_t middle = trip.send_ns + half;
    return {middle, trip.reference_ns - middle, half + 1};
  }
};

std::vector<RoundTrip> best_of_bursts(std::span<const RoundTrip> samples) {
  std::vector<RoundTrip> trips(samples.begin(), samples.end());
  std::erase_if(trips, [](const RoundTrip& trip) { return trip.receive_ns < trip.send_ns; });
  std::sort(trips.begin(), trips.end(), [](const auto& a, const auto& b) { return a.send_ns < b.send_ns; });
  std::vector<RoundTrip> best;
  std::int64_t last_ns = 0;
  for (const RoundTrip& trip : trips) {
    const std::int64_t at_ns = trip.send_ns + half_of(trip);
    if (best.empty() || at_ns - last_ns >= burst_gap_ns)
      best.push_back(trip);
    else if (half_of(trip) < half_of(best.back()))
      best.back() = trip;
    last_ns = at_ns;
  }
  return best;
}

ClockModel ClockModel::fit(std::span<const RoundTrip> samples) {
  std::vector<Point> points;
  for (const RoundTrip& trip : best_of_bursts(samples)) points.push_back(Point::of(trip));
  if (points.empty()) throw Error("no usable round trip between the clocks of two ranks");
  // Times are relative to the first point, because the clocks' absolute values exceed a double's
  // precision of 1 ns.
  ClockModel model;
  model.anchor_ns_ = points.front().at_ns;
  const std::int64_t base = points.front().offset_ns;
  double weights = 0, mean_x = 0, mean_y = 0;
  for (const Point& point : points) {
    const double weight = 1.0 / (static_cast<double>(point.half_ns) * static_cast<double>(point.half_ns));
    weights += weight;
    mean_x += weight * static_cast<double>(point.at_ns - model.anchor_ns_);
    mean_y += weight * static_cast<double>(point.offset_ns - base);
  }
  mean_x /= weights;
  mean_y /= weights;
  double xx = 0, xy = 0;
  for (const Point& point : points) {
    const double weight = 1.0 / (static_cast<double>(point.half_ns) * static_cast<double>(point.half_ns));
    const double x = static_cast<double>(point.at_ns - model.anchor_ns_) - mean_x;
    xx += weight * x * x;
    xy += weight * x * (static_cast<double>(point.offset_ns - base) - mean_y);
  }
  const double slope = xx > 0 ? xy / xx : 0;
  const double rise = slope * static_cast<double>(points.back().at_ns - points.front().at_ns);
  const bool significant =
      std::abs(rise) > static_cast<double>(points.front().half_ns + points.back().half_ns);
  model.drift_ = significant && std::abs(slope) < steepest_drift ? slope : 0;
  model.offset_ns_ = base + std::llround(mean_y - model.drift_ * mean_x);
  bool straight = true;
  for (const Point& point : points) {
    const std::int64_t miss = std::abs(model.to_reference(point.at_ns) - (point.at_ns + point.offset_ns));
    straight &= miss <= point.half_ns;
    model.residual_ns_ = std::max(model.residual_ns_, point.half_ns + miss);
  }
  if (!straight) model.bend(points);
  model.last_burst_ns_ = points.back().at_ns;
  const auto measured_ns = static_cast<double>(points.back().at_ns - points.front().at_ns);
  const auto error_ns = static_cast<double>(points.front().half_ns + points.back().half_ns);
  model.drift_error_ =
      measured_ns > 0 ? std::min(usual_drift, error_ns / measured_ns + drift_changes) : usual_drift;
  return model;
}

ClockModel ClockModel::until(std::int64_t local_ns) const {
  ClockModel model = *this;
  if (local_ns > last_burst_ns_)
    model.residual_ns_ += std::llround(drift_error_ * static_cast<double>(local_ns - last_burst_ns_));
  return model;
}

// Makes the model pass through all points. Does nothing if two neighbouring points differ by more than any
// oscillator drifts. The error between two points is bounded by half of the distance between a point and the
// line through its neighbours; for a smooth curve it would be a quarter.
void ClockModel::bend(std::span<const Point> points) {
  std::vector<Knot> knots;
  for (const Point& point : points) {
    const auto miss = static_cast<double>(point.at_ns + point.offset_ns - to_reference(point.at_ns));
    if (!knots.empty() && std::abs(miss - knots.back().deviation_ns) >
                              steepest_drift * static_cast<double>(point.at_ns - knots.back().at_ns))
      return;
    knots.push_back({point.at_ns, miss});
  }
  double between = 0;
  std::int64_t at = 0;
  for (const Point& point : points) at = std::max(at, point.half_ns);
  for (std::size_t i = 1; i + 1 < knots.size(); ++i) {
    const Knot &a = knots[i - 1], &b = knots[i + 1];
    const double part =
        static_cast<double>(knots[i].at_ns - a.at_ns) / static_cast<double>(b.at_ns - a.at_ns);
    const double without = a.deviation_ns + part * (b.deviation_ns - a.deviation_ns);
    between = std::max(between, std::abs(knots[i].deviation_ns - without) / 2);
  }
  const std::int64_t residual = at + std::llround(std::ceil(between)) + 1;
  if (residual >= residual_ns_) return;
  residual_ns_ = residual;
  knots_ = std::move(knots);
}

double ClockModel::deviation_ns(std::int64_t local_ns) const {
  if (knots_.empty()) return 0;
  const auto next = std::upper_bound(knots_.begin(), knots_.end(), local_ns,
                                     [](std::int64_t at, const Knot& knot) { return at < knot.at_ns; });
  if (next == knots_.begin()) return next->deviation_ns;
  const auto last = next - 1;
  if (next == knots_.end()) return last->deviation_ns;
  const double part =
      static_cast<double>(local_ns - last->at_ns) / static_cast<double>(next->at_ns - last->at_ns);
  return last->deviation_ns + part * (next->deviation_ns - last->deviation_ns);
}

std::int64_t ClockModel::to_reference(std::int64_t local_ns) const {
  return local_ns + offset_ns_ +
         std::llround(drift_ * static_cast<double>(local_ns - anchor_ns_) + deviation_ns(local_ns));
}

ClockModel ClockModel::shifted(std::int64_t first_ns, double first_shift_ns, std::int64_t last_ns,
                               double last_shift_ns, std::int64_t residual_ns) const {
  const auto shift_ns = [&](std::int64_t at_ns) {
    if (last_ns <= first_ns) return first_shift_ns;
    const double part = static_cast<double>(std::clamp(at_ns, first_ns, last_ns) - first_ns) /
                        static_cast<double>(last_ns - first_ns);
    return first_shift_ns + part * (last_shift_ns - first_shift_ns);
  };
  ClockModel model = *this;
  model.residual_ns_ = residual_ns;
  for (const std::int64_t at_ns : {first_ns, last_ns})
    if (std::none_of(knots_.begin(), knots_.end(), [&](const Knot& knot) { return knot.at_ns == at_ns; }))
      model.knots_.push_back({at_ns, deviation_ns(at_ns)});
  std::sort(model.knots_.begin(), model.knots_.end(),
            [](const Knot& a, const Knot& b) { return a.at_ns < b.at_ns; });
  for (Knot& knot : model.knots_) knot.deviation_ns += shift_ns(knot.at_ns);
  return model;
}

}  // namespace farandole
