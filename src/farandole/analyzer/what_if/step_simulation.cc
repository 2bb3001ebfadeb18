#include "farandole/analyzer/what_if/step_simulation.h"

#include <algorithm>
#include <utility>

namespace farandole {

using Kind = StepOperation::Kind;

// Workers are first the training threads of the ranks, then the threads beside them.
StepSimulation::StepSimulation(SimulatedMachine machine, std::vector<BucketCost> buckets, Program program)
    : machine_(std::move(machine)),
      buckets_(std::move(buckets)),
      program_(std::move(program)),
      cores_(1 + *std::max_element(machine_.node_of_rank.begin(), machine_.node_of_rank.end()),
             machine_.cores),
      ranks_(machine_.node_of_rank.size()) {}

SimulatedRun StepSimulation::run(std::size_t steps) {
  steps_ = steps;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    if (begin_step(rank)) train(rank);
  for (;;) {
    const auto busy = cores_.next();
    if (!wakes_.empty() && (!busy || wakes_.top().first <= *busy)) {
      const auto [time, worker] = wakes_.top();
      wakes_.pop();
      now_ = std::max(now_, time);
      resume(worker);
    } else if (busy) {
      const auto done = cores_.take();
      now_ = std::max(now_, done.time);
      resume(done.worker);
    } else {
      break;
    }
  }
  SimulatedRun result;
  result.length_ns = end_;
  for (std::size_t i = 0; i < begins_.size(); ++i)
    result.period_ms.push_back(((i + 1 < begins_.size() ? begins_[i + 1] : end_) - begins_[i]) * 1e-6);
  return result;
}

// If the ranks meet at all, they are never two steps apart.
StepSimulation::Meetings& StepSimulation::meetings(std::size_t step) {
  auto& there = meetings_[step % 2];
  if (std::exchange(there.step, step) == step) return there;
  there.buckets.resize(buckets_.size());
  for (auto* const meetings : {&there.buckets, &there.collectives})
    for (auto& meeting : *meetings) meeting.begin();
  return there;
}

void StepSimulation::work(std::size_t worker, double ns, double demand) {
  cores_.start(worker, machine_.node_of_rank[worker % ranks()], ns, demand, now_);
}

void StepSimulation::wake_all(Meeting& meeting, double after_ns) {
  for (const auto worker : meeting.waiting) wake(worker, after_ns);
  meeting.waiting.clear();
}

void StepSimulation::resume(std::size_t worker) {
  if (worker < ranks())
    train(worker);
  else
    reduce(worker - ranks());
}

// Returns false if the run has ended for this rank.
bool StepSimulation::begin_step(std::size_t index) {
  auto& rank = ranks_[index];
  end_ = std::max(end_, now_);
  if (rank.step == steps_) return false;
  if (rank.step == begins_.size()) begins_.push_back(now_);
  rank.operations.clear();
  rank.next = 0;
  rank.pushed = rank.reduced = 0;
  program_(index, rank.step, rank.operations);
  return true;
}

void StepSimulation::train(std::size_t index) {
  auto& rank = ranks_[index];
  if (std::exchange(rank.part_running, false)) {
    rank.part_done = true;
    auto& bucket = bucket_of(rank);
    if (++bucket.parts == ranks()) wake_all(bucket, machine_.wake_ns);
  }
  for (;;) {
    while (rank.next == rank.operations.size()) {
      ++rank.step;
      if (!begin_step(index)) return;
    }
    if (!perform(index, rank.operations[rank.next])) return;
  }
}

// Returns true if the operation ends immediately. Otherwise the training thread is resumed later.
bool StepSimulation::perform(std::size_t index, const StepOperation& operation) {
  auto& rank = ranks_[index];
  switch (operation.kind) {
    case Kind::work:
      ++rank.next;
      if (operation.ns > 0) work(index, operation.ns, machine_.threads);
      return !(operation.ns > 0);
    case Kind::pause:
      ++rank.next;
      wake(index, operation.ns);
      return false;
    case Kind::push:
      ++rank.next;
      ++rank.pushed;
      if (machine_.caller_driven)
        start_next(index);
      else if (rank.reducer == Reducer::idle)
        reduce(index);
      return true;
    case Kind::poll:
      if (machine_.caller_driven && !get_on(index, false, SIZE_MAX)) return false;
      ++rank.next;
      return true;
    case Kind::await: {
      const std::size_t until = operation.index + std::size_t{1};
      if (!(machine_.caller_driven ? get_on(index, true, until) : await_thread(index, until))) return false;
      ++rank.next;
      return true;
    }
    case Kind::meet:
      return meet(index, operation);
  }
  return true;
}

void StepSimulation::start_next(std::size_t index) {
  auto& rank = ranks_[index];
  if (rank.in_flight || rank.reduced == rank.pushed) return;
  rank.in_flight = true;
  rank.part_done = false;
  auto& bucket = bucket_of(rank);
  if (++bucket.arrived == ranks()) wake_all(bucket, machine_.wake_ns);
}

// Simulates reduce_from_caller() of fusion/reduction_queue.h.
// Returns false if the training thread works or waits.
bool StepSimulation::get_on(std::size_t index, bool may_wait, std::size_t until) {
  auto& rank = ranks_[index];
  while (rank.in_flight && rank.reduced < until) {
    auto& bucket = bucket_of(rank);
    if (!rank.part_done && bucket.arrived == ranks()) {
      rank.part_running = true;
      work(index, buckets_[rank.reduced].part_ns, 1);
      return false;
    }
    if (rank.part_done && bucket.parts == ranks()) {
      rank.in_flight = false;
      ++rank.reduced;
      start_next(index);
      continue;
    }
    if (may_wait) bucket.waiting.push_back(index);
    return !may_wait;
  }
  return true;
}

bool StepSimulation::await_thread(std::size_t index, std::size_t until) {
  auto& rank = ranks_[index];
  rank.awaited = rank.reduced >= until ? 0 : until;
  return rank.awaited == 0;
}

bool StepSimulation::meet(std::size_t index, const StepOperation& operation) {
  auto& rank = ranks_[index];
  if (std::exchange(rank.in_meeting, false)) {
    ++rank.next;
    return true;
  }
  auto& all = meetings(rank.step).collectives;
  if (all.size() <= operation.index) all.resize(operation.index + std::size_t{1});
  auto& meeting = all[operation.index];
  rank.in_meeting = true;
  meeting.waiting.push_back(index);
  if (++meeting.arrived == ranks()) wake_all(meeting, operation.ns);
  return false;
}

void StepSimulation::reduce(std::size_t index) {
  while (reduce_further(index)) {
  }
}

// Does one step of the thread beside the training thread. Returns false if the thread works, waits or
// has nothing to do.
bool StepSimulation::reduce_further(std::size_t index) {
  auto& rank = ranks_[index];
  const std::size_t worker = ranks() + index;
  switch (rank.reducer) {
    case Reducer::idle:
      if (rank.reduced == rank.pushed) return false;
      rank.reducer = Reducer::before;
      work(worker, buckets_[rank.reduced].before_ns, 1);
      return false;
    case Reducer::before:
      rank.reducer = Reducer::arrived;
      if (++bucket_of(rank).arrived == ranks()) wake_all(bucket_of(rank), machine_.wake_ns);
      return true;
    case Reducer::arrived:
      if (bucket_of(rank).arrived < ranks()) {
        bucket_of(rank).waiting.push_back(worker);
        return false;
      }
      rank.reducer = Reducer::part;
      if (machine_.parts_are_work)
        work(worker, buckets_[rank.reduced].part_ns, 1);
      else
        wake(worker, buckets_[rank.reduced].part_ns);
      return false;
    case Reducer::part:
      rank.reducer = Reducer::gathering;
      if (++bucket_of(rank).parts == ranks()) wake_all(bucket_of(rank), machine_.wake_ns);
      return true;
    case Reducer::gathering:
      if (bucket_of(rank).parts < ranks()) {
        bucket_of(rank).waiting.push_back(worker);
        return false;
      }
      rank.reducer = Reducer::after;
      work(worker, buckets_[rank.reduced].after_ns, 1);
      return false;
    case Reducer::after:
      ++rank.reduced;
      rank.reducer = Reducer::idle;
      if (rank.awaited > 0 && rank.reduced >= rank.awaited) {
        rank.awaited = 0;
        wake(index, machine_.wake_ns);
      }
      return true;
  }
  return false;
}

}  // namespace farandole
