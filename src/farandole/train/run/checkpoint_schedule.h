// Decides at which steps checkpoints are saved. Ends of epochs are not its concern.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

// How often checkpoints are saved.
struct CheckpointInterval {
  enum class Kind { never, steps, epochs, time, automatic };
  Kind kind = Kind::never;
  double amount = 0;  // steps, epochs or seconds

  bool within_epochs() const { return kind != Kind::never && kind != Kind::epochs; }
  // Epochs from one checkpoint to the next; 0: ends of epochs do not decide.
  std::int64_t epochs() const { return kind == Kind::epochs ? static_cast<std::int64_t>(amount) : 0; }

  // "500steps", "2epochs", "10min" (base/text/parse_number.h), "auto" or "never".
  // Throws: UserError if the text is none of these.
  static CheckpointInterval parse(std::string_view text);
};

// The interval that loses least time: sqrt(2 * cost * mean time between failures). Units: seconds.
// Source: Young 1974, https://doi.org/10.1145/361147.361115.
double young_interval(double cost_seconds, double seconds_between_failures);

// Rank 0 has the only one, because the ranks' clocks differ. All ranks ask it at the same steps.
class CheckpointSchedule {
 public:
  CheckpointSchedule(CheckpointInterval interval, double seconds_between_failures, std::int64_t step,
                     double now);

  struct Answer {
    bool save = false;
    std::int64_t ask_again = 0;  // the first step at which the answer can be another
  };
  // `step` steps are done. `idle`: the checkpoint before has been written. Otherwise the save is postponed to
  // the first step after that. Units of `now`: seconds since any moment.
  Answer ask(std::int64_t step, bool idle, double now);
  // A checkpoint was saved, whoever asked for it. `cost`: seconds that the last ones took from training.
  void saved(std::int64_t step, double now, double cost);

 private:
  bool due(std::int64_t step, double now) const;
  std::int64_t next(std::int64_t step, double now) const;

  const CheckpointInterval interval_;
  const double seconds_between_failures_;
  const std::int64_t first_step_;
  const double began_;
  std::int64_t saved_step_;
  double saved_at_;
  double seconds_;  // the interval, for time and automatic
};

}  // namespace farandole
