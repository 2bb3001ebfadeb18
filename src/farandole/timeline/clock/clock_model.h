// Maps a rank's clock to rank 0's, from round trips between the two. Pure functions of plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

// This rank asks rank 0 for the time: both ends of the question on this rank's clock, the answer on rank 0's.
struct RoundTrip {
  std::int64_t send_ns = 0;
  std::int64_t reference_ns = 0;
  std::int64_t receive_ns = 0;
};

// The shortest of each burst, in order of time: round trips less than 1 s apart are a burst (Cristian's
// algorithm). Those that end before they begin are left out.
std::vector<RoundTrip> best_of_bursts(std::span<const RoundTrip> samples);

// reference = local + offset + drift · (local − anchor) + deviation(local), where the deviation from the line
// is piecewise linear, and mostly none. The default is the reference clock itself.
class ClockModel {
 public:
  ClockModel() = default;

  // Samples in any order, taken in bursts (at the start, the end, and in between on long runs), of which the
  // shortest count; a line is fitted through the bursts, weighted by 1/(half round trip)², where its slope
  // exceeds what the round trips leave open, else a constant. Where bursts miss it by more than that, as when
  // a crystal warms up, the clock goes straight from burst to burst. Round trips that end before they begin
  // are ignored; throws Error where none is left.
  static ClockModel fit(std::span<const RoundTrip> samples);

  // Monotone in local_ns.
  std::int64_t to_reference(std::int64_t local_ns) const;
  // Bound of the error at and between the bursts: half of the shortest round trip and the distance from the
  // line or, where it goes from burst to burst, half of what a burst would be missed by without it.
  std::int64_t residual_ns() const { return residual_ns_; }
  // The same with times later by first_shift_ns at first_ns, by last_shift_ns at last_ns (both of this rank's
  // clock) and in proportion elsewhere, and another bound of the error.
  ClockModel shifted(std::int64_t first_ns, double first_shift_ns, std::int64_t last_ns, double last_shift_ns,
                     std::int64_t residual_ns) const;
  double drift() const { return drift_; }  // 1e-6 = 1 ppm
  std::int64_t offset_ns() const { return offset_ns_; }

 private:
  double deviation_ns(std::int64_t local_ns) const;
  struct Point;
  void bend(std::span<const Point> points);

  std::int64_t anchor_ns_ = 0;
  std::int64_t offset_ns_ = 0;
  double drift_ = 0;
  std::int64_t residual_ns_ = 0;
  struct Knot {
    std::int64_t at_ns;
    double deviation_ns;
  };
  std::vector<Knot> knots_;  // by time; before the first and after the last it stays as there
};

}  // namespace farandole
