#include "farandole/bench/overhead.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace farandole {
namespace {

constexpr std::size_t fewest = 6;  // The smallest number of rounds for which an interval is given.
constexpr int resamples = 2000;

double share_of_middle_half(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::expm1(std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
                    static_cast<double>(values.size() - 2 * static_cast<std::size_t>(cut)));
}

std::vector<double> drawn_anew(const std::vector<double>& values, Bootstrap& bootstrap) {
  std::vector<double> drawn(values.size());
  for (double& value : drawn) value = values[bootstrap.draw(values.size())];
  return drawn;
}

template <class Draw>
Range middle_of(Draw draw) {
  std::vector<double> outcomes(resamples);
  for (double& outcome : outcomes) outcome = draw();
  return {quantile(outcomes, 0.025), quantile(outcomes, 0.975)};
}

}  // namespace

ShareEstimate added_share(const std::vector<double>& by_round) {
  if (by_round.size() < fewest) return {share_of_middle_half(by_round), std::nullopt};
  Bootstrap bootstrap(1);
  return {share_of_middle_half(by_round),
          middle_of([&] { return share_of_middle_half(drawn_anew(by_round, bootstrap)); })};
}

ShareEstimate ratio_of_added(const std::vector<double>& first, const std::vector<double>& second) {
  const double ratio = share_of_middle_half(first) / share_of_middle_half(second);
  if (first.size() < fewest || second.size() < fewest) return {ratio, std::nullopt};
  Bootstrap bootstrap(1);
  return {ratio, middle_of([&] {
            return share_of_middle_half(drawn_anew(first, bootstrap)) /
                   share_of_middle_half(drawn_anew(second, bootstrap));
          })};
}

}  // namespace farandole
