#include "farandole/comm/watch/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {
namespace {

std::string what_it_did(const RankStatus& status) {
  if (const auto* call = waiting_in(status); call != nullptr) return "in " + describe_call(*call);
  if (status.in_span) return fmt::format("in {}", name_of(status.category));
  return "in no collective";
}

LostRank lost_rank(int rank, pid_t pid, std::string_view cause) {
  LostRank lost;
  lost.rank = rank;
  lost.pid = pid;
  store_text(lost.cause, cause);
  return lost;
}

}  // namespace

std::int64_t WatchdogOptions::to_ns(double seconds) {
  return static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e9);
}

double WatchdogOptions::parse_seconds(std::string_view name, std::string_view text) {
  const auto seconds = parse_number<double>(text);
  if (!seconds || !(*seconds >= 0) || !std::isfinite(*seconds))
    throw UserError(fmt::format("{} is '{}'; give a number of seconds, 0 for never", name, text));
  return *seconds;
}

WatchdogOptions WatchdogOptions::from_environment() {
  WatchdogOptions options;
  const auto read = [](const char* name, double& to) {
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0')
      to = parse_seconds(name, text);
  };
  read("FARANDOLE_STALL_SECONDS", options.stall_seconds);
  read("FARANDOLE_STALL_ABORT", options.stall_abort_seconds);
  return options;
}

double WatchdogOptions::report_seconds() const {
  const bool abort_first =
      stall_abort_seconds > 0 && !(stall_seconds > 0 && stall_seconds < stall_abort_seconds);
  return abort_first ? stall_abort_seconds : stall_seconds;
}

void say_on_stderr(int rank, const std::string& text) {
  const auto line = fmt::format("farandole: [rank {}] {}\n", rank, text);
  for (std::size_t done = 0; done < line.size();) {
    const auto wrote = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

Watchdog::Watchdog(WatchPost post, RankLayout layout, CollectiveRegistry& calls,
                   std::function<void(int)> abort)
    : post_(std::move(post)),
      layout_(std::move(layout)),
      end_(calls.add(CollectiveRegistry::session_end, layout_.size)),
      abort_(std::move(abort)),
      self_(layout_.rank, calls, probe_),
      stalls_(post_, layout_, self_, [this](const std::string& text) { say(text); }),
      deadlocks_(post_, layout_) {
  if (abort_) termination_.emplace();
  const std::int64_t now = now_ns();
  self_.look(now);
  // So that the other ranks of the node know its process from the start.
  post_.board->publish(post_.slot, self_.status(), now);
  thread_ = start_quiet_thread([this] { run(); });
}

void Watchdog::come_to_end() {
  end_->enter(ends_++, "session end", "", 0, now_ns() + CollectiveEntry::patience_ns);
  end_->set_blocked(own_thread());
}

Watchdog::~Watchdog() {
  if (!end_->read().in_flight) come_to_end();
  at_end_ = true;
  if (post_.channel != nullptr && !ends_alone_)
    post_.channel->await_all(post_.groups, post_.group,
                             [this] { return post_.board->ending() || post_.board->left(post_.slot); });
  stop_.stop();
  thread_.join();
  // The last status tells what this rank has done until its end.
  self_.look(now_ns());
  post_.board->publish(post_.slot, self_.status(), now_ns());
  leave();
}

void Watchdog::set_options(const WatchdogOptions& options) {
  abort_ns_ = WatchdogOptions::to_ns(options.stall_abort_seconds);
  stalls_.set_threshold(WatchdogOptions::to_ns(options.report_seconds()));
}

bool Watchdog::leave(bool job_ends) {
  post_.board->leave(post_.slot);
  return job_ends && post_.board->post_ending();
}

bool Watchdog::claim_loss() {
  return !loss_claimed_.exchange(true) && !post_.board->ending();
}

void Watchdog::run() {
  ::pthread_setname_np(::pthread_self(), "watchdog");
  const auto peers = post_.peers->descriptors();
  for (;;) {
    std::vector<pollfd> waiting = {
        {stop_.descriptor(), POLLIN, 0},
        {termination_ && terminated_ns_ == 0 ? termination_->descriptor() : -1, POLLIN, 0}};
    for (const int peer : peers) waiting.push_back({peers_end_ ? -1 : peer, POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), static_cast<int>(tick_ns() / ns_per_ms));
    if (waiting[0].revents != 0) {
      // The training thread may have left because of a loss that no rank has reported yet.
      leaving_ = true;
      return look_for_losses(now_ns());
    }
    tick();
  }
}

std::int64_t Watchdog::tick_ns() const {
  if (terminated_ns_ != 0) return WatchTimes::look_ending;
  return stalls_.busy() || lost_ns_ != 0 ? WatchTimes::look_busy : WatchTimes::look;
}

void Watchdog::tick() {
  const std::int64_t now = now_ns();
  self_.look(now);
  post_.board->publish(post_.slot, self_.status(), now);
  receive(now);
  look_for_losses(now);
  if (lost_ns_ == 0) stalls_.tick(now);
  mind_termination(now);
  mind_abort(now);
  mind_deadlock(now);
}

void Watchdog::receive(std::int64_t now) {
  if (post_.channel == nullptr) return;
  while (const auto alert = post_.channel->receive()) {
    answered_.insert(alert->from);
    switch (alert->kind) {
      case Alert::Kind::ping:
        post_.channel->send(alert->from, Alert{});
        break;
      case Alert::Kind::ask:
      case Alert::Kind::status:
        if (lost_ns_ == 0) stalls_.take(*alert, now);
        break;
      case Alert::Kind::probe:
      case Alert::Kind::calm:
        deadlocks_.take(*alert, now);
        break;
      case Alert::Kind::loss:
        note_loss(alert->lost, false, now);
        break;
      case Alert::Kind::here:
      case Alert::Kind::trace:
        break;
    }
  }
}

void Watchdog::look_for_losses(std::int64_t now) {
  if (lost_ns_ != 0) return;
  if (const auto lost = post_.board->loss()) return note_loss(*lost, false, now);
  const auto& mates = post_.mates();
  for (const auto& lost : post_.peers->all_lost()) {
    peers_end_ = true;
    const auto mate = std::find(mates.begin(), mates.end(), lost.rank);
    const bool left =
        mate != mates.end() && post_.board->left(static_cast<std::size_t>(mate - mates.begin()));
    const bool asked_for = lost.cause == "killed by SIGINT";  // by the user at the terminal
    if (!left && !asked_for) return note_loss(lost_rank(lost.rank, lost.pid, lost.cause), true, now);
  }
}

void Watchdog::note_loss(const LostRank& lost, bool seen_here, std::int64_t now) {
  if (lost_ns_ != 0) return;
  lost_ns_ = now;
  post_.board->post_loss(lost);
  if (claim_loss()) {
    const auto pid = lost.pid != 0 ? fmt::format("pid {} on ", lost.pid) : "on ";
    const std::string_view cause = lost.cause;
    say(fmt::format("rank {} ({}{}) {}{}; rank {} was {}", lost.rank, pid,
                    layout_.hosts.at(static_cast<std::size_t>(lost.rank)),
                    cause.starts_with("killed") ? "was " : "", cause, layout_.rank,
                    leaving_ ? "ending" : what_it_did(self_.status())));
  }
  if (!seen_here || !post_.speaks_for_group(now)) return;
  Alert alert;
  alert.kind = Alert::Kind::loss;
  alert.lost = lost;
  post_.send_to_others(alert);
}

void Watchdog::mind_termination(std::int64_t now) {
  if (terminated_ns_ == 0) {
    if (!termination_ || !termination_->requested()) return;
    terminated_ns_ = now;
    call_the_roll();
  }
  const auto since_ns = now - terminated_ns_;
  if (lost_ns_ == 0 && since_ns > WatchTimes::roll_call_takes) close_the_roll(now);
  if (lost_ns_ == 0 && !post_.board->ending() && since_ns < WatchTimes::news_takes) return;
  leave();
  Termination::go_on();
}

// If the only rank of a node is lost, no rank of that node can report it.
void Watchdog::call_the_roll() {
  if (!post_.collects()) return;
  answered_.clear();
  Alert ping;
  ping.kind = Alert::Kind::ping;
  post_.send_to_others(ping);
}

void Watchdog::close_the_roll(std::int64_t now) {
  if (!post_.leads(answered_, now)) return;
  for (std::size_t g = 0; g < post_.groups.size(); ++g) {
    const auto& ranks = post_.groups[g];
    if (g == post_.group ||
        std::any_of(ranks.begin(), ranks.end(), [this](int rank) { return answered_.contains(rank); }))
      continue;
    const auto* cause = ranks.size() == 1 ? "does not answer: it has ended, or its host has failed"
                                          : "and the other ranks of its host do not answer: they have ended, "
                                            "or the host has failed";
    return note_loss(lost_rank(ranks.front(), 0, cause), true, now);
  }
}

void Watchdog::mind_abort(std::int64_t now) {
  if (ending_ || !abort_) return;
  if (lost_ns_ != 0 && now - lost_ns_ > WatchTimes::grace &&
      (at_end_ || self_.waited_ns() > WatchTimes::grace))
    return end_job(ExitCode::peer_lost);
  const std::int64_t limit = abort_ns_;
  if (limit == 0 || self_.waited_ns() < limit || !stalls_.is_told(now)) return;
  if (!post_.speaks_for_group(now) && self_.waited_ns() < limit + WatchTimes::speaker_takes) return;
  if (others_work(now)) return;
  const auto* call = waiting_in(self_.status());
  say(fmt::format("waited {} in {}: the job ends here (stall-abort is {})", describe_seconds(call->waited_ns),
                  describe_call(*call), describe_seconds(limit)));
  end_job(ExitCode::peer_lost);
}

// Returns true also while it is not known.
bool Watchdog::others_work(std::int64_t now) {
  if (now < ask_again_ns_) return true;
  if (std::exchange(asked_ns_, asked_ns_ == 0 ? now : asked_ns_) == 0) deadlocks_.ask();
  if (post_.channel != nullptr && now - asked_ns_ < WatchTimes::nodes_take) return true;
  asked_ns_ = 0;
  const auto statuses = deadlocks_.statuses(now);
  const auto working = std::find_if(statuses.begin(), statuses.end(), &is_working);
  if (working == statuses.end()) return false;
  if (ask_again_ns_ == 0)
    say(fmt::format("stall-abort does not end the job, because rank {} works: it {}", working->rank,
                    describe_activity(*working)));
  ask_again_ns_ = now + WatchTimes::work_lasts;
  return true;
}

void Watchdog::mind_deadlock(std::int64_t now) {
  if (lost_ns_ != 0 || terminated_ns_ != 0 || ending_ || post_.board->ending()) return;
  const auto sentence = deadlocks_.tick(now);
  if (!sentence) return;
  say(*sentence);
  ending_ = true;
  if (abort_) end_job(ExitCode::user_error);
}

void Watchdog::end_job(ExitCode why) {
  ending_ = true;
  leave(true);
  const int code = static_cast<int>(why);
  // What ends the job may be stuck too.
  std::thread([code] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(WatchTimes::abort_takes));
    std::_Exit(code);
  }).detach();
  abort_(code);
}

// One write, so that lines of other ranks come before or after it.
void Watchdog::say(const std::string& text) const {
  say_on_stderr(layout_.rank, text);
}

std::unique_ptr<Watchdog> make_watchdog(ControlPlane& control, const RankLayout& layout,
                                        CollectiveRegistry& calls, std::function<void(int)> abort) {
  return std::make_unique<Watchdog>(make_watch_post(control, all_ranks(layout.size), layout.nodes), layout,
                                    calls, std::move(abort));
}

}  // namespace farandole
