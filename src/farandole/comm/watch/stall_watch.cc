#include "farandole/comm/watch/stall_watch.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {
namespace {

constexpr std::int64_t silent_after = 1500 * ns_per_ms;    // without an update of its watchdog
constexpr std::int64_t question_lasts = 3000 * ns_per_ms;  // a rank that arrives later is no longer stuck
// Times after a stall was detected: for ranks to take their stacks, for other nodes to answer, and
// for a preferred collector.
constexpr std::int64_t ranks_take = 500 * ns_per_ms, nodes_take = 1200 * ns_per_ms,
                       turn_takes = 700 * ns_per_ms;
constexpr std::int64_t foreign_stall_lasts = 10'000 * ns_per_ms;  // if this rank does not see its end

std::vector<int> choose_collectors(const WatchPost& post) {
  if (post.channel == nullptr) return post.mates();
  std::vector<int> chosen;
  for (std::size_t g = 0; g < 2; ++g)
    for (std::size_t i = 0; i < std::min<std::size_t>(2, post.groups[g].size()); ++i)
      chosen.push_back(post.groups[g][i]);
  return chosen;
}

// Longest pause of a running watchdog, which looks several times per second.
constexpr std::int64_t longest_pause = 2 * ns_per_second;

}  // namespace

StallWatch::StallWatch(WatchPost& post, const RankLayout& layout, SelfWatch& self,
                       std::function<void(const std::string&)> say)
    : post_(post), layout_(layout), self_(self), say_(std::move(say)), collectors_(choose_collectors(post)) {}

bool StallWatch::collects() const {
  return std::count(collectors_.begin(), collectors_.end(), post_.rank) > 0;
}

void StallWatch::tick(std::int64_t now_ns) {
  if (stall_) close_if_over(now_ns);
  if (const std::int64_t limit = stall_ns_; !stall_ && limit > 0 && self_.waited_ns() >= limit)
    if (const CallKey call = waiting_in(self_.status())->key; call != over_) open(call, true, now_ns);
  // A rank that was stopped during the query is no longer missing.
  if (const auto question = post_.board->question(); !stall_ && question && question->stalled != over_ &&
                                                     now_ns - question->asked_ns < question_lasts &&
                                                     question->asked_ns > self_.runs_since_ns())
    open(question->stalled, false, now_ns);
  if (!stall_ || stall_->summed_up) return;
  const std::int64_t age = now_ns - stall_->opened_ns;
  if (age >= ranks_take && !stall_->sent) exchange(now_ns);
  const auto turn = std::find(collectors_.begin(), collectors_.end(), post_.rank) - collectors_.begin();
  if (age < (post_.channel == nullptr ? ranks_take : nodes_take + turn * turn_takes)) return;
  stall_->summed_up = true;
  if (collects() && !is_left_to_another(now_ns)) sum_up(now_ns);
}

void StallWatch::open(const CallKey& call, bool waits_itself, std::int64_t now_ns) {
  stall_ = Stall{};
  stall_->call = call;
  stall_->text = fmt::format("collective #{}", call.sequence);
  stall_->opened_ns = stall_->since_ns = now_ns;
  stall_->concerned = self_.is_past(call) == false;
  if (const auto question = post_.board->question();
      !question || question->stalled != call || now_ns - question->asked_ns >= question_lasts)
    post_.board->ask(call, now_ns);
  if (post_.channel != nullptr && collects()) {
    Alert collecting;
    collecting.kind = Alert::Kind::collecting;
    collecting.stalled = call;
    for (const int rank : collectors_)
      if (rank != post_.rank) post_.channel->send(rank, collecting);
  }
  if (!stall_->concerned) return;
  say_(self_.report(layout_.node, waits_itself ? std::nullopt : std::optional(call)));
  post_.board->publish(post_.slot, self_.status(), now_ns);
}

void StallWatch::close_if_over(std::int64_t now_ns) {
  const bool over = stall_->concerned ? self_.is_past(stall_->call).value_or(true)
                                      : now_ns - stall_->opened_ns > foreign_stall_lasts;
  if (!over || !stall_->summed_up) return;
  if (stall_->concerned && stall_->summed_up_here)
    say_(fmt::format("the stall in {} is over, after {}", stall_->text,
                     describe_seconds(now_ns - stall_->since_ns)));
  over_ = stall_->call;
  stall_.reset();
}

// The lowest rank of a node sends its statuses. A collector queries nodes that have sent nothing.
void StallWatch::exchange(std::int64_t now_ns) {
  stall_->sent = true;
  if (post_.channel == nullptr) return;
  if (speaks_for_node(now_ns)) send_node(collectors_, now_ns);
  if (!collects()) return;
  Alert inquiry;
  inquiry.kind = Alert::Kind::inquire;
  inquiry.stalled = stall_->call;
  for (std::size_t g = 0; g < post_.groups.size(); ++g) {
    const auto& ranks = post_.groups[g];
    if (g == post_.group || stall_->heard.contains(ranks.front())) continue;
    for (std::size_t i = 0; i < std::min<std::size_t>(2, ranks.size()); ++i)
      post_.channel->send(ranks[i], inquiry);
  }
}

void StallWatch::send_node(std::span<const int> to, std::int64_t now_ns) {
  const auto& mates = post_.mates();
  Alert alert;
  alert.kind = Alert::Kind::status;
  alert.stalled = stall_->call;
  for (const auto& status : node_statuses(now_ns)) {
    alert.status = status;
    for (const int rank : to)
      if (!std::binary_search(mates.begin(), mates.end(), rank)) post_.channel->send(rank, alert);
  }
}

void StallWatch::take(const Alert& alert, std::int64_t now_ns) {
  using enum Alert::Kind;
  if (alert.kind != status && alert.kind != inquire && alert.kind != collecting) return;
  const bool was_there = now_ns - self_.runs_since_ns() > question_lasts;
  if (!stall_ && alert.stalled != over_ && was_there) open(alert.stalled, false, now_ns);
  if (!stall_) return;
  stall_->here.insert(alert.from);
  if (alert.kind == status) stall_->heard[alert.status.rank] = alert.status;
  if (alert.kind == inquire && stall_->sent) send_node(std::span(&alert.from, 1), now_ns);
}

Life StallWatch::life_of(std::size_t slot, const RankStatus& status, std::int64_t now_ns) const {
  if (slot == post_.slot) return Life::running;
  if (post_.board->left(slot)) return Life::leaving;
  if (status.rank < 0) return Life::unknown;
  const auto process = read_process_state(status.pid);
  if (!process || process->state == 'Z') return Life::ended;
  if (process->state == 'T') return Life::stopped;
  if (process->state == 't') return Life::traced;
  return now_ns - post_.board->published_ns(slot) > silent_after ? Life::silent : Life::running;
}

std::vector<RankStatus> StallWatch::node_statuses(std::int64_t now_ns) const {
  std::vector<RankStatus> statuses;
  for (std::size_t slot = 0; slot < post_.board->slots(); ++slot) {
    auto status = post_.board->read(slot);
    status.life = life_of(slot, status, now_ns);
    status.rank = post_.mates()[slot];
    statuses.push_back(status);
  }
  return statuses;
}

bool StallWatch::speaks_for_node(std::int64_t now_ns) const {
  for (std::size_t slot = 0; slot < post_.slot; ++slot)
    if (life_of(slot, post_.board->read(slot), now_ns) == Life::running) return false;
  return true;
}

bool StallWatch::is_left_to_another(std::int64_t now_ns) const {
  for (const int rank : collectors_) {
    if (rank == post_.rank) return false;
    const auto& mates = post_.mates();
    const auto mate = std::find(mates.begin(), mates.end(), rank);
    if (mate == mates.end() ? stall_->here.contains(rank) : [&] {
          const auto slot = static_cast<std::size_t>(mate - mates.begin());
          return life_of(slot, post_.board->read(slot), now_ns) == Life::running;
        }())
      return true;
  }
  return true;
}

void StallWatch::sum_up(std::int64_t now_ns) {
  std::vector<RankStatus> statuses(static_cast<std::size_t>(layout_.size));
  for (const auto& [rank, status] : stall_->heard) statuses.at(static_cast<std::size_t>(rank)) = status;
  for (const auto& status : node_statuses(now_ns))
    statuses.at(static_cast<std::size_t>(status.rank)) = status;
  const auto summary =
      summarize_stall(statuses, layout_.hosts, [this](const CallKey& call) { return self_.meaning(call); });
  stall_->summed_up_here = true;
  if (!summary) return;  // the stall has ended
  say_(summary->text);
  stall_->text = describe_call(summary->call);
  stall_->since_ns = now_ns - summary->call.waited_ns;
}

bool StallWatch::is_told(std::int64_t now_ns) const {
  return stall_ && (stall_->summed_up || now_ns - stall_->opened_ns > 5000 * ns_per_ms);
}

SelfWatch::SelfWatch(int rank, const CollectiveRegistry& calls, ThreadProbe& probe)
    : calls_(calls), probe_(probe) {
  status_.rank = rank;
  status_.pid = ::getpid();
  status_.life = Life::running;
}

void SelfWatch::look(std::int64_t now_ns) {
  if (looked_ns_ == 0 || now_ns - looked_ns_ > longest_pause) runs_since_ns_ = now_ns;
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
    return std::pair(a.in_flight, a.entered) > std::pair(b.in_flight, b.entered);
  });
  for (const auto& call : calls) {
    if (call.in_flight) waited_ns_ = std::max(waited_ns_, now_ns - std::max(call.since_ns, runs_since_ns_));
    if (status_.calls_used < RankStatus::most_calls) add_call(call, now_ns);
  }
}

void SelfWatch::add_call(const CollectiveStatus& call, std::int64_t now_ns) {
  CallStatus& to = status_.calls[status_.calls_used++];
  to.bytes = call.bytes;
  to.waited_ns = call.in_flight ? std::max<std::int64_t>(0, now_ns - call.since_ns) : 0;
  to.key = {call.communicator, call.entered > 0 ? call.entered - 1 : 0};
  to.entered = call.entered;
  to.in_flight = call.in_flight ? 1 : 0;
  store_text(to.operation, call.operation);
  store_text(to.name, call.name);
}

void SelfWatch::forget_span() {
  status_.span_ns = 0;
  status_.in_kernel = 0;
  store_text(status_.span, "");
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

std::string SelfWatch::report(const std::string& host, std::optional<CallKey> stalled) {
  OwnReport report;
  report.thread = probe_.take(std::chrono::milliseconds(300));
  const auto thread = read_process_state(probe_.thread());
  status_.in_kernel = !report.thread && thread && thread->state == 'D' ? 1 : 0;
  if (report.thread) {
    status_.in_span = !report.thread->spans.empty();
    if (status_.in_span) {
      const auto& span = report.thread->spans.front();
      status_.category = span.category;
      status_.span_ns = span.start_ns > 0 ? now_ns() - span.start_ns : 0;
      store_text(status_.span, span.name);
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
  return own_report(report);
}

}  // namespace farandole
