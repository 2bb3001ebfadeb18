#include "farandole/comm/watch/self_watch.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/watch/python_stack.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

SelfWatch::SelfWatch(int rank, const CollectiveRegistry& calls, ThreadProbe& probe)
    : calls_(calls), probe_(probe) {
  status_.rank = rank;
  status_.thread = static_cast<std::int32_t>(probe.thread());
  status_.pid = ::getpid();
  status_.life = Life::running;
}

void SelfWatch::look(std::int64_t now_ns) {
  if (looked_ns_ == 0 || now_ns - looked_ns_ > WatchTimes::longest_pause) runs_since_ns_ = now_ns;
  looked_ns_ = now_ns;
  const auto category = probe_.category();
  if (status_.in_span != category.has_value() || (category && status_.category != *category)) forget_span();
  status_.in_span = category.has_value();
  status_.category = category.value_or(Category::other);
  waited_ns_ = 0;
  status_.calls_used = 0;
  auto calls = calls_.read();
  // If there are more communicators than space, those that wait and the busiest ones are kept.
  std::stable_sort(calls.begin(), calls.end(), [](const CollectiveStatus& a, const CollectiveStatus& b) {
    return std::tuple(a.in_flight, a.open, a.entered) > std::tuple(b.in_flight, b.open, b.entered);
  });
  // While nothing changes between two looks, each of them shows what was true all the time between them.
  const auto same = [](const CollectiveStatus& a, const CollectiveStatus& b) {
    return a.communicator == b.communicator && a.entered == b.entered && a.in_flight == b.in_flight &&
           a.begun == b.begun && a.caller == b.caller && a.blocked == b.blocked && a.awaits == b.awaits &&
           a.open == b.open;
  };
  if (!std::equal(calls.begin(), calls.end(), last_calls_.begin(), last_calls_.end(), same)) {
    calm_since_ns_ = now_ns;
    place_asked_ = false;
    store_text(status_.place, "");
  }
  status_.calm_ns = now_ns - std::max(calm_since_ns_, runs_since_ns_);
  status_.all_calls = calls.size() <= RankStatus::most_calls && calls_.complete();
  status_.steps = calls_.steps();
  look_at_work(now_ns);
  for (const auto& call : calls) {
    if (call.in_flight) waited_ns_ = std::max(waited_ns_, now_ns - std::max(call.since_ns, runs_since_ns_));
    if (status_.calls_used < RankStatus::most_calls) add_call(call, now_ns);
  }
  last_calls_ = std::move(calls);
  // For the sentence about a deadlock, which nobody can ask for in time.
  if (!place_asked_ && python_is_watched() && status_.calm_ns >= WatchTimes::place_takes &&
      is_blocked(status_))
    take_stack();
}

// Our own helper threads use less.
void SelfWatch::look_at_work(std::int64_t now_ns) {
  constexpr auto period = 2 * ns_per_second;
  constexpr std::int64_t least_share = 20, least_bytes_per_s = 64 << 10;
  if (work_.at_ns != 0 && now_ns - work_.at_ns < period) return;
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  Work now{now_ns, std::int64_t{cpu.tv_sec} * ns_per_second + cpu.tv_nsec, 0};
  std::ifstream io("/proc/self/io");
  std::string field;
  for (std::int64_t value = 0; io >> field >> value;)
    if (field == "rchar:" || field == "wchar:") now.moved_bytes += value;
  const auto passed_ns = now.at_ns - work_.at_ns;
  status_.busy = work_.at_ns == 0 || (now.cpu_ns - work_.cpu_ns) * least_share >= passed_ns ||
                 (now.moved_bytes - work_.moved_bytes) * ns_per_second >= least_bytes_per_s * passed_ns;
  work_ = now;
}

void SelfWatch::add_call(const CollectiveStatus& call, std::int64_t now_ns) {
  CallStatus& to = status_.calls[status_.calls_used++];
  to.bytes = call.bytes;
  to.waited_ns = call.in_flight ? std::max<std::int64_t>(0, now_ns - call.since_ns) : 0;
  to.key = {call.communicator, call.entered > 0 ? call.entered - 1 : 0};
  to.entered = call.entered;
  to.in_flight = call.in_flight ? 1 : 0;
  to.ranks = call.ranks;
  to.owner = call.owner;
  to.caller = call.caller;
  to.blocked = call.blocked;
  to.awaits = call.awaits;
  to.begun = call.begun;
  store_text(to.operation, call.operation);
  store_text(to.name, call.name);
}

void SelfWatch::forget_span() {
  status_.span_ns = 0;
  status_.in_kernel = 0;
  store_text(status_.span, "");
  store_text(status_.place, "");
  store_text(status_.detail, "");
}

std::optional<bool> SelfWatch::is_past(const CallKey& call) const {
  for (const auto& own : calls_.read())
    if (own.communicator == call.communicator)
      return own.entered > call.sequence + 1 || (own.entered == call.sequence + 1 && !own.in_flight);
  return std::nullopt;
}

std::optional<CollectiveRegistry::Meaning> SelfWatch::meaning(const CallKey& call) const {
  for (const auto& own : calls_.read())
    if (own.communicator == call.communicator && own.entered == call.sequence + 1)
      return calls_.meaning(call.communicator, own.name);
  return std::nullopt;
}

std::optional<ThreadSnapshot> SelfWatch::take_stack() {
  auto snapshot = probe_.take(std::chrono::milliseconds(WatchTimes::stack_takes / ns_per_ms));
  store_text(status_.place, snapshot ? snapshot->place : "");
  place_asked_ = true;
  return snapshot;
}

std::string SelfWatch::report(const std::string& host, std::optional<CallKey> stalled) {
  OwnReport report;
  report.thread = take_stack();
  const auto thread = read_process_state(probe_.thread());
  status_.in_kernel = !report.thread && thread && thread->state == 'D' ? 1 : 0;
  if (report.thread) {
    const auto& span = report.thread->span;
    status_.in_span = span.has_value();
    if (span) {
      status_.category = span->category;
      status_.span_ns = span->start_ns > 0 ? now_ns() - span->start_ns : 0;
      store_text(status_.span, span->name);
    }
  }
  if (const auto* call = waiting_in(status_); call != nullptr) report.meaning = meaning(call->key);
  if (stalled && !report.meaning)
    if (const auto next = calls_.meaning(static_cast<std::uint16_t>(stalled->communicator), "");
        next && !next->awaited.empty())
      store_text(status_.detail, "not produced yet: " + describe_list(next->awaited, 4));
  report.missed_in = stalled;
  report.host = host;
  report.status = status_;
  reported_place_ = report.thread ? std::optional(report.thread->place) : std::nullopt;
  return own_report(report);
}

std::optional<std::string> SelfWatch::report_news(const std::string& host, std::optional<CallKey> stalled) {
  if (reported_place_ && !python_is_watched()) return std::nullopt;
  const auto before = reported_place_;
  auto text = report(host, stalled);
  if (!reported_place_) reported_place_ = before;
  return reported_place_ == before ? std::nullopt : std::optional(std::move(text));
}

}  // namespace farandole
