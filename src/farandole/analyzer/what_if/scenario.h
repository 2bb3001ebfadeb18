// The changed conditions of a prediction: `bucket-mb=4,bandwidth=2x`. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// Limits sizes, factors and delays so that computations with them do not overflow.
inline constexpr double largest_condition = 1e9;

struct Delay {
  int rank = 0;
  double ms = 0;  // Idle time of this rank at the beginning of every step.
};

// Conditions without a value are unchanged.
struct Scenario {
  std::string text;  // As the user wrote it.
  std::optional<double> bucket_mb;
  std::optional<double> bandwidth;  // Factor; the latency is unchanged.
  std::optional<int> ranks;         // Each rank keeps its batch size.
  bool no_straggler = false;
  bool no_checkpoint = false;
  std::vector<Delay> delays;
};

// Parses conditions separated by commas: bucket-mb=MIB, bandwidth=FACTORx, ranks=N,
// no-straggler, no-checkpoint, delay=RANK@MILLISECONDS.
// Throws: UserError that names the wrong condition.
Scenario parse_scenario(std::string_view text);

// "RUN" or "RUN:CONDITIONS", as for --validate. The conditions follow the last colon, unless the whole
// text is a path.
struct HeldOutRun {
  std::string path;
  Scenario conditions;
};
HeldOutRun parse_held_out(const std::string& text);

}  // namespace farandole
