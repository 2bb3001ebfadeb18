// A diagnosis as text and as JSON.
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <sstream>

#include "farandole/analyzer/report/text_table.h"
#include "farandole/base/text/json.h"
#include "farandole/doctor/diagnosis.h"
#include "farandole/doctor/diagnosis_parts.h"

namespace farandole {
namespace {

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

Json rank_json(const RankEvidence& rank, const Diagnosis& diagnosis) {
  Json json = {{"rank", rank.rank},
               {"host", text_or_null(rank.host)},
               {"end", describe_end(rank)},
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

std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis) {
  auto text = wrapped(diagnosis.verdict, 0) + "\n";
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const auto shown = ranks_to_show(run, diagnosis);
  if (!shown.empty()) {
    TextTable table({"rank", "host", "ended", "at", "step", "was"}, 6);
    for (const auto* rank : shown)
      table.add({std::to_string(rank->rank), shortened(rank->host.empty() ? "?" : rank->host, 16),
                 describe_end(*rank),
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
  return text;
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
  for (const auto& rank : run.ranks) json["ranks"].push_back(rank_json(rank, diagnosis));
  return json_text(json, 2) + "\n";
}

}  // namespace farandole
