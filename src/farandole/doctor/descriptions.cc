#include "farandole/doctor/descriptions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/remedies.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

// What mpirun says stands in paragraphs between lines of dashes. Returns the first one as one line.
std::string first_paragraph(const std::string& words) {
  std::string text;
  std::istringstream lines(words);
  for (std::string line; std::getline(lines, line);) {
    const bool empty = line.find_first_not_of("- \t\r") == std::string::npos;
    if (empty && !text.empty()) break;
    if (!empty) text += (text.empty() ? "" : " ") + line.substr(line.find_first_not_of(' '));
  }
  return shortened(text, 400);
}

const char* was(std::size_t count) {
  return count == 1 ? "was" : "were";
}

class Sentence {
 public:
  Sentence(const RunEvidence& run, const RootCause& root_cause, const std::optional<StalledCall>& call,
           std::int64_t time_ns)
      : run_(run), root_cause_(root_cause), call_(call), time_ns_(time_ns) {}

  std::string text() const {
    const auto& why = root_cause_.why;
    switch (root_cause_.cause) {
      case Cause::done:
        return "the run ended normally" +
               (run_.last_step ? fmt::format("; its last metrics are from step {}", *run_.last_step) : "");
      case Cause::refused:
        return refusal("the run was refused");
      case Cause::corrupt_input:
        return refusal("the run could not read its input");
      case Cause::preempted:
        return stopped(by_itself() ? "the run stopped on request" : "the run was preempted");
      case Cause::requeued:
        return stopped("the run was stopped because its Slurm job was requeued");
      case Cause::interrupted:
        return root_cause_.rank ? of_rank("was killed by " + why) : stopped("the run was asked to stop");
      case Cause::time_limit:
        return stopped("the run was ended by its time limit") + hang_before();
      case Cause::cancelled:
        return stopped("the run was cancelled") + hang_before();
      case Cause::host_lost:
        return host_loss();
      case Cause::stalled:
        return stall();
      case Cause::out_of_memory:
        return of_rank(fmt::format("was killed by signal 9 (out of memory: {})", why));
      case Cause::killed:
        return killing();
      case Cause::crashed:
        return of_rank("crashed with " + describe_signal(root_cause_.end->signal));
      case Cause::uncaught_exception:
        return of_rank(fmt::format("ended by an uncaught exception ({})", why));
      case Cause::failed:
        return failure();
      default:
        return unknown();
    }
  }

 private:
  const RankEvidence& rank(int number) const { return run_.ranks.at(static_cast<std::size_t>(number)); }
  bool by_itself() const { return root_cause_.end && root_cause_.end->signal == 0; }
  int exit_code() const {
    return root_cause_.end
               ? root_cause_.end->exit_code
               : static_cast<int>(run_.facts.exit_code.value_or(run_.job ? run_.job->exit_code : 1));
  }

  std::string refusal(const char* what) const {
    return fmt::format(
        "{} with exit code {}: {}", what, exit_code(),
        root_cause_.why.empty() ? "the reason is unknown, because there is no log" : root_cause_.why);
  }

  std::string killing() const {
    if (!root_cause_.rank) return with_checkpoint("the run ended because " + root_cause_.why);
    if (!root_cause_.end)
      return of_rank("was killed together with its supervisor, so that there is no record of its end,");
    return of_rank(
        "was killed by signal 9 (Killed; the sender is unknown: there is no sign of the out-of-memory killer "
        "or of Slurm)");
  }

  std::string stopped(std::string text) const {
    if (!root_cause_.why.empty()) text += fmt::format(" ({})", root_cause_.why);
    return with_checkpoint(std::move(text));
  }

  std::string with_checkpoint(std::string text) const {
    if (time_ns_ != 0) text += " at " + clock_time_of(time_ns_);
    if (run_.checkpoint_step)
      text += fmt::format("; its newest checkpoint is from step {}", *run_.checkpoint_step);
    else if (!run_.other_checkpoint.empty())
      text += "; it has no checkpoint of Farandole, but " + run_.other_checkpoint + " looks like one";
    else if (!is_earlier_start(run_.folder))
      text += "; it has no checkpoint";
    return text;
  }

  // Describes the hang before the stop, if there was one.
  std::string hang_before() const {
    if (!call_ || call_->missing.empty() || time_ns_ - call_->since_ns < stall_limit_ns(run_.ranks))
      return "";
    return "; before that it hung: " + describe_wait(run_, *call_, time_ns_, Tense::past);
  }

  std::string host_loss() const {
    if (!root_cause_.rank) return "the run lost a host: " + root_cause_.why;
    const auto& first = rank(*root_cause_.rank);
    std::vector<int> there;
    for (const auto& one : run_.ranks)
      if (one.host == first.host) there.push_back(one.rank);
    auto text =
        fmt::format("{} {} lost with host {}: there is no record of {} end", describe_ranks(there),
                    there.size() == 1 ? "was" : "were", first.host, there.size() == 1 ? "its" : "their");
    if (!root_cause_.why.empty()) text += fmt::format(" ({})", root_cause_.why);
    if (const auto place = describe_place(first); !place.empty())
      text += fmt::format("; rank {} was last seen{}", first.rank, place);
    return text + others();
  }

  std::string stall() const {
    if (!call_ || call_->missing.empty())
      return fmt::format("the run stalled and was therefore ended: {}", root_cause_.why);
    std::int64_t until = 0;
    for (const auto& one : run_.ranks)
      if (one.end && (until == 0 || one.end->time_ns < until)) until = one.end->time_ns;
    return describe_wait(run_, *call_, std::max(until, call_->since_ns), Tense::past) +
           fmt::format("; therefore {} ended the job", remedy(Topic::ended_by_stall, run_.kind));
  }

  std::string failure() const {
    const int code = exit_code();
    if (root_cause_.rank && code == 0) return of_rank("ended with exit code 0 without MPI_Finalize");
    if (no_rank_began(run_) && run_.job && !root_cause_.why.empty())
      return fmt::format("{} did not start the ranks: {}", run_.job->starter,
                         first_paragraph(root_cause_.why));
    auto what = fmt::format("ended with exit code {}", code);
    if (code > 128 && code <= 128 + 64)
      what += fmt::format(", with which a shell reports {}", describe_signal(code - 128));
    if (!root_cause_.why.empty()) what += fmt::format(" ({})", root_cause_.why);
    return root_cause_.rank ? of_rank(what) : "the run " + what;
  }

  std::string unknown() const {
    std::string text = "why the run ended is unknown: ";
    if (root_cause_.rank)
      text += fmt::format("there is no record of the end of {}{}", describe_who(rank(*root_cause_.rank)),
                          root_cause_.why.empty() ? "" : " (" + root_cause_.why + ")");
    else if (!run_.job && known_ends(run_).empty())
      text += by_recorders();
    else
      text += root_cause_.why.empty() ? std::string(killed_launcher) : root_cause_.why;
    if (call_ && !call_->missing.empty())
      text +=
          fmt::format("; according to the flight recorders, {} waited in {} for {}, last seen{}",
                      describe_ranks(call_->waiting), call_->text, describe_who(rank(call_->missing.front())),
                      describe_place(rank(call_->missing.front())));
    return text;
  }

  // Of ranks that another launcher has started.
  std::string by_recorders() const {
    std::vector<int> closed, open, none;
    for (const auto& one : run_.ranks)
      (!one.recorder ? none : one.recorder->closed ? closed : open).push_back(one.rank);
    std::string text = "no launcher has left a record of it (it was killed itself, or was not farandole run)";
    if (!open.empty())
      text += fmt::format("; {} did not close the flight recorder: killed, crashed, or ended by _exit()",
                          closed.empty() ? "all ranks that have one" : describe_ranks(open));
    else if (!closed.empty())
      text += "; its ranks have closed their flight recorders and ended by themselves";
    if (!none.empty() && none.size() < run_.ranks.size())
      text += fmt::format("; {} left no flight recorder", describe_ranks(none));
    return text;
  }

  std::string of_rank(std::string what) const {
    if (!root_cause_.rank) return "a rank " + what;
    const auto& one = rank(*root_cause_.rank);
    auto text = describe_who(one) + " " + what + describe_place(one);
    if (root_cause_.end && root_cause_.end->time_ns != 0)
      text += ", at " + clock_time_of(root_cause_.end->time_ns);
    return text + others();
  }

  // "; ranks 0-2 waited in … for it; they ended 1.9 s later with exit code 70".
  std::string others() const {
    std::vector<int> others, waiting;
    for (const auto& one : run_.ranks)
      if (one.rank != *root_cause_.rank && one.end) others.push_back(one.rank);
    if (call_) waiting = call_->waiting;
    std::erase(waiting, *root_cause_.rank);
    std::string text;
    if (!waiting.empty()) {
      const bool missed = std::count(call_->missing.begin(), call_->missing.end(), *root_cause_.rank) > 0;
      text = fmt::format("; {} {} in {}{}", describe_ranks(waiting), missed ? "waited" : was(waiting.size()),
                         call_->text, missed ? " for it" : "");
    }
    const auto ends = ends_of(others);
    if (ends.empty()) return text;
    if (waiting == others) return text + " and " + ends;
    return text + fmt::format("; {} {}", describe_ranks(others), ends);
  }

  std::string ends_of(const std::vector<int>& ranks) const {
    if (ranks.empty()) return "";
    std::int64_t last = 0;
    bool all_told = true;
    std::vector<std::string> different;
    for (const int number : ranks) {
      const auto& end = *rank(number).end;
      all_told &= end.told && end.failed();
      last = std::max(last, end.time_ns);
      const auto how = end.signal != 0 ? fmt::format("by signal {}", end.signal)
                                       : fmt::format("with exit code {}", end.exit_code);
      if (std::count(different.begin(), different.end(), how) == 0) different.push_back(how);
    }
    const auto first = root_cause_.end ? root_cause_.end->time_ns : 0;
    const auto after =
        first != 0 && last > first ? fmt::format(" {} later", describe_seconds(last - first)) : "";
    if (all_told) return fmt::format("{} stopped by the launcher{}", was(ranks.size()), after);
    return fmt::format("ended{} {}", after, fmt::join(different, " and "));
  }

  const RunEvidence& run_;
  const RootCause& root_cause_;
  const std::optional<StalledCall>& call_;
  const std::int64_t time_ns_;
};

}  // namespace

std::string describe_cause(const RunEvidence& run, const RootCause& root_cause,
                           const std::optional<StalledCall>& call, std::int64_t time_ns) {
  return Sentence(run, root_cause, call, time_ns).text();
}

std::string describe_wait(const RunEvidence& run, const StalledCall& call, std::int64_t until_ns,
                          Tense tense) {
  const auto& missing = run.ranks.at(static_cast<std::size_t>(call.missing.front()));
  const char* verb = tense == Tense::past       ? "waited"
                     : call.waiting.size() == 1 ? "has waited"
                                                : "have waited";
  auto text = fmt::format("{} {} {} in {} for ", describe_ranks(call.waiting), verb,
                          describe_seconds(until_ns - call.since_ns), call.text);
  auto all_missing = call.missing;
  std::sort(all_missing.begin(), all_missing.end());
  if (all_missing.size() > 1) text += describe_ranks(all_missing) + ", first of all ";
  text += describe_who(missing);
  const auto place = describe_place(missing);
  if (place.empty()) return text;
  text += fmt::format(", which {}{}", tense == Tense::past ? "was" : "is", place);
  const auto& at = missing.log.place;
  if (!at.empty()) text += ", " + at;
  if (missing.recorder->doing && missing.recorder->doing->start_ns > 0)
    text += at.empty() ? "" : ",",
        text += fmt::format(" for {}", describe_seconds(until_ns - missing.recorder->doing->start_ns));
  return text;
}

std::string describe_signal(int signal) {
  return fmt::format("signal {} ({})", signal, ::strsignal(signal));
}

std::string clock_time_of(std::int64_t realtime_ns) {
  return time_of(realtime_ns).substr(11, 8) + " UTC";
}

std::string describe_who(const RankEvidence& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} on {}", rank.rank, rank.host);
}

std::string describe_place(const RankEvidence& rank) {
  std::string text;
  if (rank.recorder && rank.recorder->step >= 0) text += fmt::format(" in step {}", rank.recorder->step);
  if (const auto doing = describe_doing(rank); !doing.empty()) text += (text.empty() ? " " : ", ") + doing;
  return text;
}

std::string time_of(std::int64_t realtime_ns) {
  const std::time_t seconds = realtime_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string describe_end(const RankEvidence& rank, bool with_job) {
  if (rank.end) {
    const auto how = rank.end->signal != 0 ? describe_signal(rank.end->signal)
                                           : fmt::format("exit code {}", rank.end->exit_code);
    if (rank.end->told && rank.end->failed()) return "stopped: " + how;
    return rank.end->signal != 0 ? "killed: " + how : how;
  }
  if (rank.log.signal) return "killed: " + describe_signal(*rank.log.signal);
  if (rank.log.exit_code) return fmt::format("exit code {}", *rank.log.exit_code);
  if (rank.is_stopped()) return "is stopped";
  if (rank.alive || with_job) return rank.alive ? "runs" : "with the job";
  return !rank.recorder ? "unknown" : rank.recorder->closed ? "by itself" : "recorder open";
}

std::string describe_doing(const RankEvidence& rank) {
  if (!rank.recorder || rank.recorder->closed) return "";
  const auto& recorder = *rank.recorder;
  if (recorder.doing) {
    if (recorder.doing->kind == RecordKind::span && recorder.doing->category == Category::step)
      return recorder.did_last ? fmt::format("between phases (after {})", describe(*recorder.did_last))
                               : "between phases";
    return "in " + describe(*recorder.doing);
  }
  return recorder.did_last ? "in or after " + describe(*recorder.did_last) : "";
}

}  // namespace farandole
