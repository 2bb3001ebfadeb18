#include "farandole/analyzer/metrics/replay.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <utility>

namespace farandole {
namespace {

using Kind = ReplayOperation::Kind;
constexpr double not_yet = std::numeric_limits<double>::infinity();
constexpr std::size_t none = SIZE_MAX;

// A discrete-event simulation. Ranks continue in the order of time, because only then it is known at a poll
// which ranks have entered a reduction.
class Simulation {
 public:
  Simulation(ReplayProgram& program, double wake_ns)
      : program_(program), wake_ns_(wake_ns), ranks_(program.ranks()) {}

  std::vector<ReplayMark> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) resume(rank, 0);
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      ranks_[rank].now = time;
      advance(rank);
    }
    return std::move(marks_);
  }

 private:
  struct Entry {  // A rank in a collective.
    std::size_t rank = 0;
    std::size_t own = 0;  // Number of the collective on this rank.
    double time = 0;
    ReplayOperation operation;
  };
  struct Collective {
    std::vector<Entry> entries;  // Empty after the last one.
    std::size_t entered = 0;
    double last = -not_yet;            // Time of the last entry.
    std::size_t reduced = 0;           // Ranks that have done their part of the reduction.
    std::vector<std::size_t> waiting;  // Ranks that wait for the others' entry or part.
  };
  struct Reduction {
    std::size_t collective = 0, own = 0;
    double part_ns = 0;
    bool part_done = false;
  };
  struct Rank {
    std::vector<ReplayOperation> operations;
    std::size_t next = 0;
    double now = 0;
    std::vector<double> ends;    // By the rank's own numbers.
    std::vector<Entry> held_up;  // Until another of the rank's collectives has ended.
    std::size_t awaited = none;
    std::deque<Reduction> reductions;  // The first one is in flight.
    bool works_on_part = false;
  };

  Collective& collective(std::size_t index) {
    if (index >= collectives_.size()) collectives_.resize(index + 1);
    return collectives_[index];
  }

  void resume(std::size_t rank, double time) { events_.emplace(time, rank); }

  void wake_all(Collective& all, double now) {
    for (const auto rank : std::exchange(all.waiting, {})) resume(rank, now + wake_ns_);
  }

  void advance(std::size_t index) {
    auto& rank = ranks_[index];
    if (std::exchange(rank.works_on_part, false)) end_part(rank);
    for (;;) {
      if (rank.next == rank.operations.size()) {
        rank.operations.clear();
        rank.next = 0;
        program_.append(index, rank.operations);
        if (rank.operations.empty()) return;
      }
      if (!perform(index, rank.operations[rank.next])) return;
      ++rank.next;
    }
  }

  // Returns true if the operation ends immediately. Otherwise the rank is resumed later and
  // performs it again.
  bool perform(std::size_t index, ReplayOperation& operation) {
    auto& rank = ranks_[index];
    switch (operation.kind) {
      case Kind::work: {
        const double ns = std::exchange(operation.ns, 0);
        if (ns > 0) resume(index, rank.now + ns);
        return !(ns > 0);
      }
      case Kind::mark: {
        if (operation.index >= marks_.size()) marks_.resize(operation.index + std::size_t{1});
        auto& mark = marks_[operation.index];
        mark.first = std::min(mark.first, rank.now + operation.ns);
        mark.last = std::max(mark.last, rank.now + operation.ns);
        return true;
      }
      case Kind::enter:
        enter(index, operation);
        return true;
      case Kind::await:
        if (rank.ends[operation.index] <= rank.now) return true;
        if (rank.ends[operation.index] < not_yet)
          resume(index, rank.ends[operation.index]);
        else
          rank.awaited = operation.index;
        return false;
      case Kind::push:
        rank.reductions.push_back({operation.index, rank.ends.size(), operation.ns});
        rank.ends.push_back(not_yet);
        if (rank.reductions.size() == 1) start_first(rank);
        return true;
      case Kind::poll:
        return reduce(index, none);
      case Kind::finish:
        return reduce(index, operation.index);
    }
    return true;
  }

  void enter(std::size_t index, const ReplayOperation& operation) {
    auto& rank = ranks_[index];
    const Entry entry{index, rank.ends.size(), rank.now + operation.delay_ns, operation};
    rank.ends.push_back(not_yet);
    const double before = operation.after < entry.own ? rank.ends[operation.after] : -not_yet;
    if (before == not_yet)
      rank.held_up.push_back(entry);
    else
      add(entry, before);
    notice_ends();
  }

  // `before`: the end of the collective after which the rank enters this one.
  void add(Entry entry, double before) {
    entry.time = std::max(entry.time, before + entry.operation.delay_ns);
    auto& all = collective(entry.operation.index);
    all.last = std::max(all.last, entry.time);
    ++all.entered;
    if (entry.operation.leaves_early)
      ended_.push_back({entry.rank, entry.own, entry.time + entry.operation.ns});
    else
      all.entries.push_back(entry);
    if (all.entered < program_.members(entry.operation.index)) return;
    for (const auto& one : std::exchange(all.entries, {})) {
      const double wake = one.operation.wakes && one.time < all.last ? wake_ns_ : 0;
      ended_.push_back({one.rank, one.own, all.last + one.operation.ns + wake});
    }
  }

  // Entries that were held up may end further collectives.
  void notice_ends() {
    while (!ended_.empty()) {
      const auto [index, own, end] = ended_.back();
      ended_.pop_back();
      auto& rank = ranks_[index];
      rank.ends[own] = end;
      if (rank.awaited == own) {
        rank.awaited = none;
        resume(index, std::max(rank.now, end));
      }
      for (std::size_t i = 0; i < rank.held_up.size(); ++i)
        if (rank.held_up[i].operation.after == own) {
          const auto entry = rank.held_up[i];
          rank.held_up.erase(rank.held_up.begin() + static_cast<std::ptrdiff_t>(i));
          add(entry, end);
          break;
        }
    }
  }

  void start_first(Rank& rank) {
    const auto index = rank.reductions.front().collective;
    auto& all = collective(index);
    if (++all.entered == program_.members(index)) wake_all(all, rank.now);
  }

  void end_part(Rank& rank) {
    auto& reduction = rank.reductions.front();
    reduction.part_done = true;
    auto& all = collective(reduction.collective);
    if (++all.reduced == all.entered) wake_all(all, rank.now);
  }

  // As the training thread does in fusion/reduction_queue.h. `until`: number of the collective for which the
  // rank waits. Returns false if the training thread works or waits.
  bool reduce(std::size_t index, std::size_t until) {
    auto& rank = ranks_[index];
    while (!rank.reductions.empty() && (until == none || rank.ends[until] == not_yet)) {
      auto& reduction = rank.reductions.front();
      auto& all = collective(reduction.collective);
      const bool all_entered = all.entered == program_.members(reduction.collective);
      if (!reduction.part_done && all_entered) {
        rank.works_on_part = true;
        resume(index, rank.now + reduction.part_ns);
        return false;
      }
      if (!reduction.part_done || all.reduced < all.entered) {
        if (until != none) all.waiting.push_back(index);
        return until == none;
      }
      rank.ends[reduction.own] = rank.now;
      rank.reductions.pop_front();
      if (!rank.reductions.empty()) start_first(rank);
    }
    return true;
  }

  struct Ended {
    std::size_t rank, own;
    double end;
  };
  using Event = std::pair<double, std::size_t>;  // Time and rank.

  ReplayProgram& program_;
  const double wake_ns_;
  std::vector<Rank> ranks_;
  std::vector<Collective> collectives_;
  std::vector<Ended> ended_;  // Not yet noticed by their ranks.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<ReplayMark> marks_;
};

}  // namespace

std::vector<ReplayMark> replay(ReplayProgram& program, double wake_ns) {
  return Simulation(program, wake_ns).run();
}

}  // namespace farandole
