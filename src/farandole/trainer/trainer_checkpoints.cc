// How the trainer saves its state and goes on from it.
#include <array>
#include <cmath>

#include "farandole/base/text/json.h"
#include "farandole/train/run/run_directory.h"
#include "farandole/train/session_internals.h"
#include "farandole/trainer/trainer.h"

namespace farandole {

void Trainer::resume(const Position& position, Snapshot* snapshot) {
  restore(session_, *model_, *inner_, snapshot);
  if (auto* const scaler = optimizer_.loss_scaler()) restore_loss_scale(session_, *scaler, snapshot);
  start_at(position);
  saved_step_ = position_.step;
  if (snapshot == nullptr) return;
  const bool known = !std::isnan(snapshot->best_score);  // Not in files of format version 1.
  best_score_ = known ? snapshot->best_score : snapshot->score;
  best_step_ = known ? snapshot->best_step : snapshot->step;
}

// Only rank 0 knows the time and whether the last checkpoint has been written. If ranks average
// parameters, they also do so at a save, which is therefore never postponed: the result must not depend on
// the speed of the disk.
void Trainer::save_if_due(double score) {
  if (position_.step < ask_at_) return;
  std::array<std::int64_t, 2> answer{};
  if (leads()) {
    const bool ready = store_->idle() || averages_parameters();
    const auto [save, ask_again] = schedule_->ask(position_.step, ready, seconds_since(0));
    answer = {save, ask_again};
  }
  session_.internals().communicator().broadcast("save", answer.data(), sizeof answer, 0);
  ask_at_ = answer[1];
  if (answer[0] == 0) return;
  averages_parameters() ? save(score) : take_snapshot(score);
}

void Trainer::save(double score) {
  await_writer(session_, store_.get());
  take_snapshot(score);
}

void Trainer::take_snapshot(double score) {
  const Span span(session_.timeline(), Category::checkpoint, "snapshot");
  const auto begin_ns = now_ns();
  confirm();
  optimizer_.average_parameters();
  optimizer_.average_state();
  auto builder = leads() ? store_->builder() : SnapshotBuilder();
  capture(session_, *model_, *inner_, position_, builder, copies_ ? &*copies_ : nullptr);
  saved_step_ = position_.step;
  if (!leads()) return;
  if (const auto* const scaler = optimizer_.loss_scaler()) add_loss_scale(builder, *scaler);
  add_order(builder, {data_.train->size(), data_.hash, options_.seed});
  auto snapshot = builder.finish();
  snapshot.config = options_.to_json();
  snapshot.versions = json_text(library_versions());
  snapshot.score = score;
  snapshot.best_score = best_score_;
  snapshot.best_step = best_step_;
  store_->save(std::move(snapshot), copies_ ? copies_->start() : std::function<void()>());
  schedule_->saved(position_.step, seconds_since(0), seconds_since(begin_ns) + store_->write_seconds());
}

}  // namespace farandole
