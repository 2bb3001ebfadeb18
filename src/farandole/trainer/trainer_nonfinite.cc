// Steps whose gradients or loss are not finite: they stop the job, are skipped, or lead back to a checkpoint.
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "farandole/base/log.h"
#include "farandole/base/text/phrases.h"
#include "farandole/trainer/trainer.h"

namespace farandole {

// On a GPU, the result of the last step is not known before.
void Trainer::confirm() {
  try {
    optimizer_.confirm();
  } catch (const NonFiniteGradient& gradient) {
    handle_nonfinite(gradient, loss_sum_);
  }
}

void Trainer::handle_nonfinite(const NonFiniteGradient& gradient, const torch::Tensor& loss) {
  constexpr int most_in_a_row = 10;
  const auto reason = explain(gradient, loss);
  if (options_.on_nonfinite == "rollback") return roll_back(reason);
  std::string remedy;
  if (options_.on_nonfinite == "stop")
    remedy =
        "lower --lr, limit the gradients with --clip-norm, or go on with --on-nonfinite skip or rollback";
  else if (++skipped_in_a_row_ == most_in_a_row)
    remedy = fmt::format("this is the {}th step in a row; lower --lr, or continue from an earlier checkpoint",
                         most_in_a_row);
  if (!remedy.empty()) {
    const Error error(fmt::format("step {}: {}; {}", position_.step, reason, remedy));
    if (averages_parameters()) throw error;
    session_.together([&] { throw error; });
  }
  tell_skipped(reason);
}

void Trainer::tell_skipped(const std::string& reason) {
  session_.timeline().instant(session_.timeline().intern("skipped step"));
  if (!leads() && averages_parameters()) log_warning("step {} is skipped: {}", position_.step, reason);
  if (!leads()) return;
  progress_->say(fmt::format("step {} is skipped: {}", position_.step, reason));
  metrics_->write(MetricsLog::SkippedStep{position_.step, position_.epoch, reason});
}

std::string Trainer::explain(const NonFiniteGradient& gradient, const torch::Tensor& loss) {
  const auto ranks = ranks_where(!std::isfinite(loss.item<double>()));
  return fmt::format("{}; the loss is {}", gradient.what(),
                     ranks.empty() ? "finite" : "not finite on " + describe_ranks(ranks));
}

std::vector<int> Trainer::ranks_where(bool here) {
  if (averages_parameters()) return here ? std::vector{session_.rank()} : std::vector<int>();
  const auto all = session_.all_gather(torch::full({1}, here));
  std::vector<int> ranks;
  for (int r = 0; r < session_.size(); ++r)
    if (all[r].item<bool>()) ranks.push_back(r);
  return ranks;
}

// The samples of the failed step and those since the checkpoint are not trained again: they would fail again.
void Trainer::roll_back(const std::string& reason) {
  constexpr int most_in_a_row = 3;
  const Span span(session_.timeline(), Category::checkpoint, "roll back");
  std::optional<Snapshot> snapshot;
  await_writer(session_, store_.get());
  session_.together([&] {
    if (!leads()) return;
    auto found = read_newest_checkpoint(options_.run_dir / "checkpoints", memory_of(*model_));
    if (!found)
      throw Error(fmt::format(
          "step {}: {}; there is no checkpoint yet to return to; lower --lr, or save checkpoints more often",
          position_.step, reason));
    snapshot = std::move(found->second);
    rollbacks_in_a_row_ = snapshot->step == rolled_back_to_ ? rollbacks_in_a_row_ + 1 : 1;
    rolled_back_to_ = snapshot->step;
    if (rollbacks_in_a_row_ > most_in_a_row)
      throw Error(fmt::format(
          "step {}: {}; the job has returned to the checkpoint of step {} {} times; lower --lr, or "
          "continue from an earlier checkpoint",
          position_.step, reason, snapshot->step, most_in_a_row));
    progress_->say(fmt::format("step {}: {}; the parameters are those of step {} again", position_.step,
                               reason, snapshot->step));
    metrics_->write(MetricsLog::Rollback{position_.step, position_.epoch, snapshot->step, reason});
  });
  restore(session_, *model_, *inner_, snapshot ? &*snapshot : nullptr);
}

}  // namespace farandole
