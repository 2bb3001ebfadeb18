// A cost as a function of size, fitted to measured costs: latency and 1/bandwidth. Plain
// values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace farandole {

struct CostSample {
  double bytes = 0;
  double ns = 0;
};

// ns = alpha + beta · bytes. If one line is not sufficient, a second line applies from `split_bytes` on.
struct CostModel {
  struct Line {
    double alpha_ns = 0;
    double beta_ns = 0;  // Per byte.
    double at(double bytes) const { return alpha_ns + beta_ns * bytes; }
  };
  std::string unknown;  // Why the cost is unknown; then the other members are empty.
  Line line, beyond;
  double split_bytes = 0;  // 0: there is one line.
  double spread = 0;       // Median relative deviation of the samples from the model.
  std::size_t samples = 0;
  std::size_t sizes = 0;  // Number of different sizes; with one size, alpha is 0.

  bool known() const { return unknown.empty(); }
  const Line& line_for(double bytes) const { return split_bytes > 0 && bytes >= split_bytes ? beyond : line; }
  double at(double bytes) const { return line_for(bytes).at(bytes); }
};

// Fits the median of each size, so that single delays have no effect. Latency and 1/bandwidth are not
// negative. Sizes within 1 % count as equal. With fewer than `least` samples, the cost is unknown.
CostModel fit_costs(std::vector<CostSample> samples, std::size_t least = 5);

}  // namespace farandole
