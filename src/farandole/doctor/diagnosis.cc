#include "farandole/doctor/diagnosis.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "farandole/base/phrases.h"
#include "farandole/doctor/advice.h"
#include "farandole/doctor/cause_text.h"
#include "farandole/doctor/findings.h"
#include "farandole/doctor/rank_words.h"
#include "farandole/doctor/root_cause.h"

namespace farandole {
namespace {

// Returns the state letter of a process of this machine. 'T' means stopped; 0 means unknown.
char process_state(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '\0';
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
    return run_.launcher_alive ||
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
    if (call_ && !call_->missing.empty() && run_.now_ns - call_->since_ns > long_wait_ns) return judge_hang();
    found_.verdict = "the run is still running";
    if (step >= 0) found_.verdict += fmt::format(", at step {}", step);
    if (last > 0)
      found_.verdict += fmt::format("; its newest event is {} old",
                                    describe_seconds(std::max<std::int64_t>(0, run_.now_ns - last)));
    else
      found_.verdict += "; nothing more is known, because it has no flight recorder";
    found_.verdict += ".";
  }

  void judge_hang() {
    found_.cause = Cause::stalled;
    found_.call = call_;
    found_.rank = call_->missing.front();
    found_.verdict = "the run hangs: " + describe_wait(run_, *call_, run_.now_ns, Tense::present);
    const auto& missing = run_.ranks.at(static_cast<std::size_t>(*found_.rank));
    if (missing.alive && process_state(missing.recorder->pid) == 'T')
      found_.verdict += fmt::format("; its process {} is stopped (state T)", missing.recorder->pid);
    found_.verdict += ".";
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
