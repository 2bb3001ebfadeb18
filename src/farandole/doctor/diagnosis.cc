#include "farandole/doctor/diagnosis.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <sstream>
#include <string_view>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/descriptions.h"
#include "farandole/doctor/findings.h"

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
    if (root_cause.cause == Cause::unknown && !found_.rank) found_.rank = only_open_rank();
    found_.verdict = describe_cause(run_, root_cause, call_, found_.time_ns) + ".";
  }

  // The rank that has not closed its recorder, if all others have.
  std::optional<int> only_open_rank() const {
    std::optional<int> open;
    for (const auto& one : run_.ranks)
      if (one.recorder && !one.recorder->closed) {
        if (open) return std::nullopt;
        open = one.rank;
      }
    return open;
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

// Returns the last activity of the rank, or "" if it is unknown. For ranks that waited in the collective of
// the diagnosis, this is that collective.
std::string describe_last_moment(const RankEvidence& rank, const Diagnosis& diagnosis) {
  const auto& call = diagnosis.call;
  if (call && std::count(call->waiting.begin(), call->waiting.end(), rank.rank) > 0)
    return "in " + call->text;
  return describe_doing(rank);
}

// If there are many ranks, only those that differ are shown: the root cause, those that failed by
// themselves, and the first.
std::vector<const RankEvidence*> ranks_to_show(const RunEvidence& run, const Diagnosis& diagnosis) {
  constexpr std::size_t most = 16;
  std::vector<const RankEvidence*> shown;
  for (const auto& rank : run.ranks) shown.push_back(&rank);
  std::stable_sort(shown.begin(), shown.end(), [&](const auto* a, const auto* b) {
    const auto importance = [&](const RankEvidence& rank) {
      if (diagnosis.rank == rank.rank) return 0;
      if (!rank.end && !rank.alive) return 1;
      return rank.end && rank.end->failed() && !rank.end->told ? 2 : 3;
    };
    return importance(*a) < importance(*b);
  });
  shown.resize(std::min(shown.size(), most));
  std::sort(shown.begin(), shown.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  return shown;
}

void append_list(std::string& text, const char* title, const std::vector<std::string>& paragraphs) {
  if (paragraphs.empty()) return;
  text += fmt::format("\n{}\n", title);
  for (const auto& paragraph : paragraphs) {
    std::istringstream lines(paragraph);
    std::size_t indent = 2;
    for (std::string line; std::getline(lines, line); indent = 6)
      text += std::string(indent, ' ') + wrapped(shortened(line, 1000), indent + 2) + "\n";
  }
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}
template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json time_or_null(std::int64_t time_ns) {
  return time_ns == 0 ? Json() : Json(time_of(time_ns));
}

// Whether the job has ended because another rank, whose end is known, has failed.
bool ended_with_job(const RunEvidence& run, const Diagnosis& diagnosis) {
  return run.job && run.job->end_ns != 0 && diagnosis.rank &&
         run.ranks.at(static_cast<std::size_t>(*diagnosis.rank)).end;
}

Json rank_json(const RankEvidence& rank, const Diagnosis& diagnosis, bool with_job) {
  Json json = {{"rank", rank.rank},
               {"host", text_or_null(rank.host)},
               {"end", describe_end(rank, with_job)},
               {"exit_code", Json()},
               {"signal", Json()},
               {"asked_to_stop", Json()},
               {"ended", Json()},
               {"peak_memory_bytes", Json()},
               {"step", Json()},
               {"doing", text_or_null(describe_last_moment(rank, diagnosis))},
               {"versions", Json::object()}};
  if (rank.end) {
    if (rank.end->signal == 0) json["exit_code"] = rank.end->exit_code;
    if (rank.end->signal != 0) json["signal"] = rank.end->signal;
    json["asked_to_stop"] = rank.end->told;
    json["ended"] = time_or_null(rank.end->time_ns);
    if (rank.end->peak_memory_bytes > 0) json["peak_memory_bytes"] = rank.end->peak_memory_bytes;
    if (!rank.end->kernel.empty()) json["versions"]["kernel"] = rank.end->kernel;
  } else if (rank.log.exit_code || rank.log.signal) {
    json["exit_code"] = value_or_null(rank.log.exit_code);
    json["signal"] = value_or_null(rank.log.signal);
  }
  if (rank.recorder) {
    if (rank.recorder->step >= 0) json["step"] = rank.recorder->step;
    for (const auto& [what, value] : rank.recorder->facts) json["versions"][what] = value;
  }
  return json;
}

}  // namespace

Diagnosis diagnose(const RunEvidence& run) {
  return Diagnosing(run).diagnose();
}

std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis) {
  auto text = wrapped(diagnosis.verdict, 0) + "\n";
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const auto shown = ranks_to_show(run, diagnosis);
  if (!shown.empty()) {
    TextTable table({"rank", "host", "ended", "at", "step", "was"}, 6);
    for (const auto* rank : shown)
      table.add({std::to_string(rank->rank), shortened(rank->host.empty() ? "?" : rank->host, 16),
                 describe_end(*rank, ended_with_job(run, diagnosis)),
                 rank->end && rank->end->time_ns != 0 ? time_of(rank->end->time_ns).substr(11, 8) : "",
                 rank->recorder && rank->recorder->step >= 0 ? std::to_string(rank->recorder->step) : "",
                 shortened(describe_last_moment(*rank, diagnosis), 44)});
    text += "\n" + table.text(Style(false));
    if (shown.size() < run.ranks.size())
      text += fmt::format("  and {} more like the last\n", run.ranks.size() - shown.size());
  }
  append_list(text, "Evidence", diagnosis.evidence);
  append_list(text, "Not readable", run.troubles);
  append_list(text, "Next", diagnosis.next);
  return printable_lines(text);  // Logs and records of others are in it.
}

std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis) {
  Json json = {{"farandole_doctor", 1},
               {"run", run.folder.string()},
               {"verdict", diagnosis.verdict},
               {"cause", name_of(diagnosis.cause)},
               {"rank", value_or_null(diagnosis.rank)},
               {"host", text_or_null(diagnosis.host)},
               {"step", value_or_null(diagnosis.step)},
               {"phase", text_or_null(diagnosis.phase)},
               {"time", time_or_null(diagnosis.time_ns)},
               {"collective", Json()},
               {"exit_code", Json()},
               {"free_bytes", value_or_null(run.free_bytes)},
               {"checkpoint_step", value_or_null(run.checkpoint_step)},
               {"evidence", diagnosis.evidence},
               {"next", diagnosis.next},
               {"troubles", run.troubles},
               {"ranks", Json::array()}};
  if (diagnosis.call)
    json["collective"] = {{"text", diagnosis.call->text},
                          {"waiting", diagnosis.call->waiting},
                          {"missing", diagnosis.call->missing}};
  if (run.job && run.job->end_ns != 0)
    json["exit_code"] = run.job->exit_code;
  else if (run.facts.exit_code)
    json["exit_code"] = *run.facts.exit_code;
  for (const auto& rank : run.ranks)
    json["ranks"].push_back(rank_json(rank, diagnosis, ended_with_job(run, diagnosis)));
  return json_text(json, 2) + "\n";
}

}  // namespace farandole
