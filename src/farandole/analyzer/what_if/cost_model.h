// What something costs by its size, fitted from what it did cost: latency and 1/bandwidth. Plain values and
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace farandole {

struct CostSample {
  double bytes = 0;
  double ns = 0;
};

// ns = alpha + beta · bytes; where one line does not do, another from `split_bytes` on.
struct CostModel {
  struct Line {
    double alpha_ns = 0;
    double beta_ns = 0;  // a byte
    double at(double bytes) const { return alpha_ns + beta_ns * bytes; }
  };
  std::string unknown;  // why nothing is known; then the rest is empty
  Line line, beyond;
  double split_bytes = 0;  // 0: one line
  double spread = 0;       // median of the samples' deviations from the model, relative
  std::size_t samples = 0;
  std::size_t sizes = 0;  // different ones; with one, alpha is 0

  bool known() const { return unknown.empty(); }
  const Line& line_for(double bytes) const { return split_bytes > 0 && bytes >= split_bytes ? beyond : line; }
  double at(double bytes) const { return line_for(bytes).at(bytes); }
  // With so many times the bandwidth; latency stays.
  double at(double bytes, double bandwidth) const {
    const auto& used = line_for(bytes);
    return used.alpha_ns + used.beta_ns * bytes / bandwidth;
  }
};

// Through the median of each size, so that single delays do not count; neither latency nor 1/bandwidth is
// below 0. Sizes within 1 % are one. Fewer than `least` samples: unknown.
CostModel fit_costs(std::vector<CostSample> samples, std::size_t least = 5);

}  // namespace farandole
