#include "farandole/comm/watch/stall_watch.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

StallWatch::StallWatch(WatchPost& post, const RankLayout& layout, SelfWatch& self,
                       std::function<void(const std::string&)> say)
    : post_(post), layout_(layout), self_(self), say_(std::move(say)) {}

void StallWatch::tick(std::int64_t now_ns) {
  if (!stall_) look_for_stall(now_ns);
  if (!stall_) return;
  const std::int64_t age = now_ns - stall_->opened_ns;
  if (stall_->stage == Stage::asked && age >= WatchTimes::ranks_take) send_to_collectors(now_ns);
  if (stall_->stage == Stage::sent && (post_.channel == nullptr || age >= WatchTimes::nodes_take))
    sum_up(now_ns);
  if (stall_->stage != Stage::told) return;
  look_again(now_ns);
  close_if_over(now_ns);
}

void StallWatch::look_for_stall(std::int64_t now_ns) {
  if (const std::int64_t limit = stall_ns_; limit > 0 && self_.waited_ns() >= limit)
    if (const CallKey call = waiting_in(self_.status())->key; call != over_) return open(call, true, now_ns);
  // A rank that was stopped during the question is no longer missing.
  if (const auto question = post_.board->question();
      question && question->stalled != over_ && now_ns - question->asked_ns < WatchTimes::question_lasts &&
      question->asked_ns > self_.runs_since_ns())
    open(question->stalled, false, now_ns);
}

void StallWatch::take(const Alert& alert, std::int64_t now_ns) {
  const bool was_there = now_ns - self_.runs_since_ns() > WatchTimes::question_lasts;
  if (!stall_ && alert.stalled != over_ && was_there) open(alert.stalled, false, now_ns);
  if (!stall_) return;
  stall_->heard_from.insert(alert.from);
  if (alert.kind == Alert::Kind::status)
    stall_->heard[alert.status.rank] = alert.status;
  else if (stall_->stage != Stage::asked && post_.speaks_for_group(now_ns))
    send_statuses(std::span(&alert.from, 1), now_ns);  // its question came too late for them
}

void StallWatch::open(const CallKey& call, bool waits_itself, std::int64_t now_ns) {
  stall_ = Stall{};
  stall_->call = call;
  stall_->text = fmt::format("collective #{}", call.sequence);
  stall_->opened_ns = stall_->since_ns = now_ns;
  stall_->concerned = self_.is_past(call) == false;
  if (const auto question = post_.board->question();
      !question || question->stalled != call || now_ns - question->asked_ns >= WatchTimes::question_lasts)
    post_.board->ask(call, now_ns);
  if (post_.collects()) {
    Alert ask;
    ask.kind = Alert::Kind::ask;
    ask.stalled = call;
    post_.send_to_others(ask);
  }
  if (!stall_->concerned) return;
  stall_->waits_itself = waits_itself;
  say_(self_.report(layout_.node, waits_itself ? std::nullopt : std::optional(call)));
  post_.board->publish(post_.slot, self_.status(), now_ns);
}

// The pauses grow, so that a long stall has few reports.
void StallWatch::look_again(std::int64_t now_ns) {
  if (!stall_->concerned || now_ns < stall_->look_again_ns) return;
  stall_->look_again_ns = now_ns + (now_ns - stall_->opened_ns);
  if (const auto news =
          self_.report_news(layout_.node, stall_->waits_itself ? std::nullopt : std::optional(stall_->call)))
    say_(*news);
}

void StallWatch::send_statuses(std::span<const int> to, std::int64_t now_ns) {
  Alert alert;
  alert.kind = Alert::Kind::status;
  alert.stalled = stall_->call;
  for (const auto& status : post_.statuses(now_ns)) {
    alert.status = status;
    for (const int rank : to) post_.channel->send(rank, alert);
  }
}

void StallWatch::send_to_collectors(std::int64_t now_ns) {
  stall_->stage = Stage::sent;
  if (post_.channel == nullptr || !post_.speaks_for_group(now_ns)) return;
  for (const std::size_t group : {0, 1})
    if (group != post_.group) send_statuses(post_.contacts(group), now_ns);
}

void StallWatch::sum_up(std::int64_t now_ns) {
  stall_->stage = Stage::told;
  if (!post_.leads(stall_->heard_from, now_ns)) return;
  std::vector<RankStatus> statuses(static_cast<std::size_t>(layout_.size));
  for (const auto& [rank, status] : stall_->heard) statuses.at(static_cast<std::size_t>(rank)) = status;
  for (const auto& status : post_.statuses(now_ns))
    statuses.at(static_cast<std::size_t>(status.rank)) = status;
  const auto summary =
      summarize_stall(statuses, layout_.hosts, [this](const CallKey& call) { return self_.meaning(call); });
  if (!summary) return;  // the stall has ended
  stall_->told_here = true;
  say_(summary->text);
  stall_->text = summary->call.text;
  stall_->since_ns = now_ns + summary->call.since_ns;
}

void StallWatch::close_if_over(std::int64_t now_ns) {
  const bool over = stall_->concerned ? self_.is_past(stall_->call).value_or(true)
                                      : now_ns - stall_->opened_ns > WatchTimes::foreign_stall_lasts;
  if (!over) return;
  if (stall_->concerned && stall_->told_here)
    say_(fmt::format("the stall in {} is over, after {}", stall_->text,
                     describe_seconds(now_ns - stall_->since_ns)));
  over_ = stall_->call;
  stall_.reset();
}

bool StallWatch::is_told(std::int64_t now_ns) const {
  return stall_ && (stall_->stage == Stage::told || now_ns - stall_->opened_ns > WatchTimes::report_takes);
}

}  // namespace farandole
