// What is to be different in a what-if: `bucket-mb=4,bandwidth=2x`. Plain values and functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// Sizes, factors and delays beyond it, or below its inverse, would overflow what is computed with them.
inline constexpr double largest_condition = 1e9;

struct Delay {
  int rank = 0;
  double ms = 0;  // in which this rank does nothing, at the beginning of every step
};

// What is not named stays as it was.
struct Scenario {
  std::string text;  // as it was given
  std::optional<double> bucket_mb;
  std::optional<double> bandwidth;  // times what it was; latency stays
  std::optional<int> ranks;         // each with the batch that one had
  std::string compression;          // as --compression of the trainer; "" as it was
  bool no_straggler = false;
  bool no_checkpoint = false;
  std::vector<Delay> delays;

  bool as_it_was() const;
};

// Of a compression: what travels has half the size.
bool is_half(std::string_view compression);

// Conditions separated by commas: bucket-mb=MIB, bandwidth=FACTORx, ranks=N, compression=NAME, no-straggler,
// no-checkpoint, delay=RANK@MILLISECONDS. Throws UserError that names what is wrong.
Scenario parse_scenario(std::string_view text);

// "RUN" or "RUN:CONDITIONS", as --validate takes it: what lies before the last colon, where that is no path,
// and the conditions behind it.
struct HeldOutRun {
  std::string path;
  Scenario conditions;
};
HeldOutRun parse_held_out(const std::string& text);

}  // namespace farandole
