#include "farandole/doctor/diagnosis_text.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <sstream>

#include "farandole/analyzer/report/text_table.h"
#include "farandole/doctor/rank_words.h"

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

}  // namespace farandole
