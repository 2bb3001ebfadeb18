#include "farandole/comm/watch/deadlock_watch.h"

#include <algorithm>
#include <span>

#include "farandole/comm/watch/deadlock.h"

namespace farandole {
namespace {

bool is_calm(const RankStatus& status) {
  if (status.life == Life::leaving) return true;
  return status.life == Life::running && status.calm_ns >= WatchTimes::calm_takes && is_blocked(status);
}

std::vector<std::int64_t> calls_of_ranks(std::span<const RankStatus> statuses) {
  std::vector<std::int64_t> all;
  for (const auto& status : statuses) {
    all.insert(all.end(), {-1 - std::int64_t{status.rank}, status.life == Life::leaving ? 1 : 0});
    for (const auto& call : calls_of(status))
      all.insert(all.end(), {call.key.communicator, call.begun, call.in_flight, call.blocked, call.awaits});
  }
  return all;
}

}  // namespace

std::optional<std::string> DeadlockWatch::tick(std::int64_t now_ns) {
  // The own status comes first, because the others cost system calls.
  auto here = std::vector{post_.board->read(post_.slot)};
  if (is_calm(here.front()) && post_.speaks_for_group(now_ns)) here = post_.statuses(now_ns);
  if (here.size() < post_.mates().size() || !std::all_of(here.begin(), here.end(), &is_calm)) {
    sent_.clear();
    return std::nullopt;
  }
  if (post_.group == 0) return decide(now_ns);
  if (auto state = calls_of_ranks(here); state != sent_) {
    sent_ = std::move(state);
    for (const int collector : post_.contacts(0)) send_statuses(collector, now_ns);
  }
  return std::nullopt;
}

std::optional<std::string> DeadlockWatch::decide(std::int64_t now_ns) {
  const auto all = statuses(now_ns);
  if (!std::all_of(all.begin(), all.end(), &is_calm)) return std::nullopt;
  const auto waits = find_deadlock(all);
  if (waits.empty()) return std::nullopt;
  auto state = calls_of_ranks(all);
  if (state != found_) {
    found_ = std::move(state);
    found_ns_ = now_ns;
    ask();
    return std::nullopt;
  }
  if (now_ns - found_ns_ < WatchTimes::confirmation_takes) return std::nullopt;
  return describe_deadlock(waits, all);
}

void DeadlockWatch::ask() {
  heard_.clear();
  if (post_.channel == nullptr) return;
  Alert probe;
  probe.kind = Alert::Kind::probe;
  post_.send_to_others(probe);
}

void DeadlockWatch::take(const Alert& alert, std::int64_t now_ns) {
  if (alert.kind == Alert::Kind::calm)
    heard_[alert.status.rank] = alert.status;
  else if (post_.speaks_for_group(now_ns))
    send_statuses(alert.from, now_ns);
}

void DeadlockWatch::send_statuses(int to, std::int64_t now_ns) {
  Alert alert;
  alert.kind = Alert::Kind::calm;
  for (const auto& status : post_.statuses(now_ns)) {
    alert.status = status;
    post_.channel->send(to, alert);
  }
}

std::vector<RankStatus> DeadlockWatch::statuses(std::int64_t now_ns) const {
  std::vector<RankStatus> all(static_cast<std::size_t>(layout_.size));
  for (const auto& [rank, status] : heard_) all.at(static_cast<std::size_t>(rank)) = status;
  for (const auto& status : post_.statuses(now_ns)) all.at(static_cast<std::size_t>(status.rank)) = status;
  return all;
}

}  // namespace farandole
