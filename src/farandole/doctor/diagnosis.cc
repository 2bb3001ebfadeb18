#include "farandole/doctor/diagnosis.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <sstream>
#include <string_view>

#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/diagnosis_parts.h"

namespace farandole {
namespace {

// Returns the number of the first rank that a stall report calls missing.
std::optional<int> missing_in(const std::string& report) {
  constexpr std::string_view before = "\n  rank ";
  const auto at = report.find(before);
  if (at == std::string::npos) return std::nullopt;
  const auto number = report.substr(at + before.size());
  return parse_number<int>(std::string_view(number).substr(0, number.find(' ')));
}

class Diagnosing {
 public:
  explicit Diagnosing(const RunEvidence& run) : run_(run), call_(find_stalled_call(run.ranks)) {}

  Diagnosis diagnose() {
    if (is_running())
      judge_running();
    else
      judge_end();
    if (found_.rank) note_place(run_.ranks.at(static_cast<std::size_t>(*found_.rank)));
    found_.evidence = find_evidence(run_, found_);
    found_.next = advise(run_, found_);
    return std::move(found_);
  }

 private:
  bool is_running() const {
    return run_.launcher_alive || run_.lease_alive ||
           std::any_of(run_.ranks.begin(), run_.ranks.end(), [](const auto& one) { return one.alive; });
  }

  void judge_running() {
    found_.cause = Cause::running;
    std::int64_t step = -1, last = 0;
    for (const auto& one : run_.ranks) {
      if (!one.recorder) continue;
      step = std::max(step, one.recorder->step);
      last = std::max(last, one.recorder->last_ns);
    }
    if (is_stalled()) return judge_hang();
    found_.verdict = "the run is still running";
    if (step < 0) step = run_.last_step.value_or(-1);
    if (step >= 0) found_.verdict += fmt::format(", at step {}", step);
    if (last > 0)
      found_.verdict += fmt::format("; its newest event is {} old",
                                    describe_seconds(std::max<std::int64_t>(0, run_.now_ns - last)));
    else
      found_.verdict += "; nothing more is known, because it has no flight recorder";
    constexpr std::int64_t unusual_wait_ns = 1'000'000'000;
    if (someone_is_missing() && run_.now_ns - call_->since_ns > unusual_wait_ns)
      found_.verdict += fmt::format("; {}. A wait of {} counts as a hang",
                                    describe_wait(run_, *call_, run_.now_ns, Tense::present),
                                    describe_seconds(stall_limit_ns(run_.ranks)));
    found_.verdict += stopped_helpers() + ".";
  }

  bool someone_is_missing() const { return call_ && !call_->missing.empty(); }

  const RankEvidence* first_stopped() const {
    const auto found = std::find_if(run_.ranks.begin(), run_.ranks.end(),
                                    [](const auto& one) { return one.alive && one.is_stopped(); });
    return found == run_.ranks.end() ? nullptr : &*found;
  }

  // The report of the run's own watchdog about a stall that is not over; "" if there is none.
  std::string stall_report() const {
    for (const auto& one : run_.ranks)
      if (!one.log.stall.empty()) return one.log.stall;
    return "";
  }

  bool is_stalled() const {
    if (first_stopped() != nullptr || !stall_report().empty()) return true;
    return someone_is_missing() && run_.now_ns - call_->since_ns > stall_limit_ns(run_.ranks);
  }

  void judge_hang() {
    found_.cause = Cause::stalled;
    found_.verdict = "the run hangs: ";
    if (someone_is_missing()) {
      found_.call = call_;
      found_.rank = call_->missing.front();
      found_.verdict += describe_wait(run_, *call_, run_.now_ns, Tense::present);
      const auto& missing = run_.ranks.at(static_cast<std::size_t>(*found_.rank));
      if (missing.is_stopped()) found_.verdict += fmt::format("; its {}", stopped_process(missing));
    } else if (const auto* stopped = first_stopped(); stopped != nullptr) {
      found_.rank = stopped->rank;
      found_.verdict += fmt::format("{}{}: its {}", describe_who(*stopped), describe_place(*stopped),
                                    stopped_process(*stopped));
    } else {
      judge_by_report(stall_report());
    }
    found_.verdict += stopped_helpers() + ".";
  }

  std::string stopped_helpers() const {
    std::string text;
    for (const auto& [who, pid] : run_.stopped_helpers)
      text += fmt::format("; {} (process {}) is stopped (state T)", who, pid);
    return text;
  }

  static std::string stopped_process(const RankEvidence& rank) {
    return rank.state == 'T' ? fmt::format("process {} is stopped (state T)", rank.pid)
                             : fmt::format("process {} is held by a debugger (state t)", rank.pid);
  }

  void judge_by_report(const std::string& report) {
    if (const auto rank = missing_in(report);
        rank && *rank >= 0 && *rank < static_cast<int>(run_.ranks.size()))
      found_.rank = rank;
    std::istringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
      const auto text = line.find_first_not_of(' ');
      if (text == std::string::npos) continue;
      found_.verdict += line.starts_with("stall: ") ? line.substr(7) : "; " + line.substr(text);
    }
  }

  void judge_end() {
    const auto root_cause = find_root_cause(run_, call_);
    found_.cause = root_cause.cause;
    found_.rank = root_cause.rank;
    if (root_cause.end) found_.time_ns = root_cause.end->time_ns;
    if (found_.time_ns == 0 && run_.job) found_.time_ns = run_.job->end_ns;
    if (root_cause.cause != Cause::done) found_.call = call_;
    if (root_cause.cause == Cause::unknown && !found_.rank && call_ && !call_->missing.empty())
      found_.rank = call_->missing.front();
    found_.verdict = describe_cause(run_, root_cause, call_, found_.time_ns) + ".";
  }

  void note_place(const RankEvidence& rank) {
    found_.host = rank.host;
    if (!rank.recorder) return;
    if (rank.recorder->step >= 0) found_.step = rank.recorder->step;
    if (rank.recorder->doing)
      found_.phase = describe(*rank.recorder->doing);
    else if (!rank.recorder->closed && rank.recorder->did_last)
      found_.phase = describe(*rank.recorder->did_last);
  }

  const RunEvidence& run_;
  const std::optional<StalledCall> call_;
  Diagnosis found_;
};

}  // namespace

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, 17> names = {
      "done",       "running",       "stalled",       "preempted", "requeued", "interrupted",
      "time limit", "cancelled",     "out of memory", "killed",    "crashed",  "uncaught exception",
      "refused",    "corrupt input", "failed",        "host lost", "unknown"};
  return names.at(static_cast<std::size_t>(cause));
}

std::string describe_last_moment(const RankEvidence& rank, const Diagnosis& diagnosis) {
  const auto& call = diagnosis.call;
  if (call && std::count(call->waiting.begin(), call->waiting.end(), rank.rank) > 0)
    return "in " + call->text;
  return describe_doing(rank);
}

Diagnosis diagnose(const RunEvidence& run) {
  return Diagnosing(run).diagnose();
}

}  // namespace farandole
