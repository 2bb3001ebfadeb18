// Maps a rank's clock to rank 0's clock, based on round trips between the two. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

// One query of rank 0's time: start and end on this rank's clock, the answer on rank 0's clock.
struct RoundTrip {
  std::int64_t send_ns = 0;
  std::int64_t reference_ns = 0;
  std::int64_t receive_ns = 0;
};

// What an oscillator drifts at most, unless the clock was changed.
inline constexpr double usual_drift = 1e-4;

// The shortest round trip of each burst, in order of time. Round trips less than 1 s apart form a burst
// (Cristian's algorithm). Round trips that end before they begin are left out.
std::vector<RoundTrip> best_of_bursts(std::span<const RoundTrip> samples);

// reference = local + offset + drift · (local − anchor) + deviation(local). The deviation from the line is
// piecewise linear and mostly zero. A default-constructed model is the reference clock itself.
class ClockModel {
 public:
  ClockModel() = default;

  // Fits a model to samples in any order. They are taken in bursts at the start, at the end and, on long
  // runs, in between; only the shortest of each burst counts. A line is fitted through the bursts with
  // weights 1/(half round trip)². If its slope is within the uncertainty of the round trips, a constant is
  // used instead. If bursts deviate from the line by more than their uncertainty, for example because a
  // crystal warms up, the model interpolates linearly between the bursts.
  // Throws: Error if no sample is usable; a round trip that ends before it begins is not.
  static ClockModel fit(std::span<const RoundTrip> samples);

  // Monotone in local_ns.
  // Units: nanoseconds.
  std::int64_t to_reference(std::int64_t local_ns) const;
  // Bound of the error at and between the bursts. For a line it is the largest sum of a burst's half round
  // trip and its distance from the line. If the model interpolates between bursts, it is the largest half
  // round trip plus half of the largest error that omitting one burst would cause.
  // Units: nanoseconds.
  std::int64_t residual_ns() const { return residual_ns_; }
  // Returns the model with a bound of the error that also holds until local_ns. After the last burst, the
  // error grows with the uncertainty of the drift, which is 100 ppm if there is only one burst.
  ClockModel until(std::int64_t local_ns) const;
  // Returns a model whose times are later by first_shift_ns until first_ns and by last_shift_ns from
  // last_ns on, and proportionally in between, with the given error bound. first_ns and last_ns are on
  // this rank's clock.
  ClockModel shifted(std::int64_t first_ns, double first_shift_ns, std::int64_t last_ns, double last_shift_ns,
                     std::int64_t residual_ns) const;

 private:
  double deviation_ns(std::int64_t local_ns) const;
  struct Point;
  void bend(std::span<const Point> points);

  std::int64_t anchor_ns_ = 0;
  std::int64_t offset_ns_ = 0;
  double drift_ = 0;  // 1e-6 = 1 ppm
  std::int64_t residual_ns_ = 0;
  std::int64_t last_burst_ns_ = 0;
  double drift_error_ = 0;
  struct Knot {
    std::int64_t at_ns;
    double deviation_ns;
  };
  std::vector<Knot> knots_;  // by time; constant before the first and after the last
};

}  // namespace farandole
