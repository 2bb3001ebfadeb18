#include "farandole/train/run/run_checkpoints.h"

#include <array>
#include <limits>

#include "farandole/base/clock.h"
#include "farandole/launch/process/memory.h"
#include "farandole/train/session_internals.h"

namespace farandole {

RunCheckpoints::RunCheckpoints(Session& session, const Options& options, std::int64_t step, bool is_saved)
    : session_(session), saved_step_(is_saved ? step : -1) {
  if (!options.every.within_epochs()) ask_at_ = std::numeric_limits<std::int64_t>::max();
  session.together([&] {
    if (session.rank() != 0) return;
    store_ = std::make_unique<CheckpointStore>(
        CheckpointOptions{options.run_dir / "checkpoints", options.keep, options.keep_every,
                          [&session] { return session.internals().holds_lease(); }},
        session.timeline());
    schedule_.emplace(options.every, options.mtbf, step, seconds_since(0));
    if (const auto& gpu = session.internals().gpu) copies_.emplace(*gpu, session.device());
  });
}

// Only rank 0 knows the time and whether the last checkpoint has been written.
bool RunCheckpoints::due(std::int64_t step, bool may_be_postponed) {
  if (step < ask_at_) return false;
  std::array<std::int64_t, 2> answer{};
  if (schedule_) {
    const bool ready = !may_be_postponed || store_->idle();
    const auto [save, ask_again] = schedule_->ask(step, ready, seconds_since(0));
    answer = {save, ask_again};
  }
  session_.internals().communicator().broadcast("save", answer.data(), sizeof answer, 0);
  ask_at_ = answer[1];
  return answer[0] != 0;
}

void RunCheckpoints::await_writer() {
  farandole::await_writer(session_, store_.get());
}

void RunCheckpoints::wait() {
  await_writer();
  session_.together([&] {
    if (store_) store_->wait();
  });
}

void RunCheckpoints::save(std::int64_t step,
                          const std::function<void(SnapshotBuilder&, DeviceCopies*)>& capture,
                          const std::function<void(Snapshot&)>& describe) {
  const auto begin_ns = now_ns();
  auto builder = store_ ? store_->builder() : SnapshotBuilder();
  capture(builder, copies_ ? &*copies_ : nullptr);
  saved_step_ = step;
  if (!store_) return;
  auto snapshot = builder.finish();
  describe(snapshot);
  store_->save(std::move(snapshot), copies_ ? copies_->start() : std::function<void()>());
  schedule_->saved(step, seconds_since(0), seconds_since(begin_ns) + store_->write_seconds());
}

void RunCheckpoints::prepare(std::size_t bytes) {
  const auto available = available_memory_bytes();
  if (copies_ && available && static_cast<std::int64_t>(bytes) < *available / 2) copies_->prepare(bytes);
}

void RunCheckpoints::hold() {
  if (copies_) copies_->hold();
}

}  // namespace farandole
