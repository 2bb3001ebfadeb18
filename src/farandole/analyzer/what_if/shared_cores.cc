#include "farandole/analyzer/what_if/shared_cores.h"

#include <algorithm>
#include <utility>

namespace farandole {

void SharedCores::catch_up(Node& node, double now) const {
  node.progress += std::max(0.0, now - node.time) * speed_of(cores_, node.demand);
  node.time = std::max(node.time, now);
}

void SharedCores::queue(std::size_t index) {
  auto& node = nodes_[index];
  if (node.work.empty()) {
    node.demand = 0;  // Removes the rounding error.
    first_end_[index] = std::numeric_limits<double>::infinity();
  } else {
    const double left = std::max(0.0, node.work.top().target - node.progress);
    first_end_[index] = node.time + left / speed_of(cores_, node.demand);
    ends_.emplace(first_end_[index], index);
  }
  while (!ends_.empty() && ends_.top().first != first_end_[ends_.top().second]) ends_.pop();
}

void SharedCores::start(std::size_t worker, std::size_t node_index, double ns, double demand, double now) {
  auto& node = nodes_[node_index];
  catch_up(node, now);
  node.work.push({node.progress + std::max(0.0, ns), worker, demand});
  node.demand += demand;
  queue(node_index);
}

std::optional<double> SharedCores::next() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.top().first;
}

SharedCores::Done SharedCores::take() {
  const auto [time, index] = ends_.top();
  ends_.pop();
  auto& node = nodes_[index];
  catch_up(node, time);
  const auto first = node.work.top();
  node.work.pop();
  node.progress = std::max(node.progress, first.target);
  node.demand -= first.demand;
  queue(index);
  return {time, first.worker};
}

WorkClock::WorkClock(const std::vector<std::vector<Interval>>& idle, const std::vector<Interval>& beside,
                     double demand, double cores, Interval window) {
  std::vector<std::pair<std::int64_t, double>> changes = {
      {window.start, demand * static_cast<double>(idle.size())}};
  const auto add = [&](Interval interval, double change) {
    interval.start = std::max(interval.start, window.start);
    if (interval.start >= interval.end) return;
    changes.emplace_back(interval.start, change);
    changes.emplace_back(interval.end, -change);
  };
  for (const auto& thread : idle)
    for (const auto& interval : thread) add(interval, -demand);
  for (const auto& interval : beside) add(interval, 1);
  std::sort(changes.begin(), changes.end());
  double busy = 0;
  for (const auto& [time, change] : changes) {
    busy += change;
    const double work = at(time);
    const double speed = speed_of(cores, busy);
    if (!marks_.empty() && marks_.back().time == time)
      marks_.back().speed = speed;
    else if (marks_.empty() || marks_.back().speed != speed)
      marks_.push_back({time, work, speed});
  }
}

double WorkClock::at(std::int64_t time) const {
  if (marks_.empty()) return static_cast<double>(time);
  auto mark = std::upper_bound(marks_.begin(), marks_.end(), time,
                               [](std::int64_t t, const Mark& m) { return t < m.time; });
  if (mark != marks_.begin()) --mark;
  return mark->work + static_cast<double>(time - mark->time) * mark->speed;
}

ThreadClock::ThreadClock(const WorkClock& clock, const std::vector<Interval>& waits, Interval interval)
    : clock_(clock), begin_(clock.at(interval.start)) {
  auto wait = std::lower_bound(waits.begin(), waits.end(), interval.start,
                               [](const Interval& one, std::int64_t time) { return one.end <= time; });
  double waited = 0;
  for (; wait != waits.end() && wait->start < interval.end; ++wait) {
    const Interval inside{std::max(wait->start, interval.start), wait->end};
    waits_.push_back({inside, waited});
    waited += clock.at(inside.end) - clock.at(inside.start);
  }
}

double ThreadClock::at(std::int64_t time) const {
  const auto next = std::upper_bound(waits_.begin(), waits_.end(), time,
                                     [](std::int64_t t, const Wait& one) { return t < one.when.start; });
  if (next == waits_.begin()) return std::max(0.0, clock_.at(time) - begin_);
  const auto& last = *(next - 1);
  const double since = clock_.at(time) - clock_.at(std::min(time, last.when.end));
  return std::max(0.0, clock_.at(last.when.start) - begin_ - last.before + since);
}

}  // namespace farandole
