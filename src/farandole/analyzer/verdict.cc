#include "farandole/analyzer/verdict.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace farandole {
namespace {

// Losses by Share, but for compute, which is none.
constexpr std::array<const char*, share_count> loss_texts = {
    "",
    "waiting for ranks that arrive late at collectives",
    "communication that compute does not hide",
    "loading data",
    "writing checkpoints",
    "evaluation",
    "work outside of the phases",
    "time in which ranks neither compute nor communicate"};

constexpr std::array<const char*, share_count> loss_titles = {"",
                                                              "Ranks wait for each other",
                                                              "Communication is exposed",
                                                              "Data loading holds up training",
                                                              "Checkpoints hold up training",
                                                              "Evaluation takes its share",
                                                              "Unnamed work",
                                                              "Idle time"};

constexpr std::array<const char*, share_count> changes = {
    "",
    "look at the rank's node: other load, clock frequency, uneven batches",
    "let buckets start earlier (smaller --bucket-mb) or send less (larger --batch per rank)",
    "prepare samples on another thread, or keep them in memory",
    "checkpoint less often (--checkpoint-steps, --checkpoint-epochs)",
    "evaluate less often, or on fewer samples",
    "annotate what the training thread does there",
    "see in the timeline what the training thread waits for"};

Share largest_loss(const RunMetrics& metrics) {
  auto largest = Share::waiting;
  for (std::size_t i = 1; i < share_count; ++i)
    if (metrics.share(static_cast<Share>(i)) > metrics.share(largest)) largest = static_cast<Share>(i);
  return largest;
}

std::string lateness_text(const RunMetrics& metrics, const Straggler& straggler) {
  const auto& rank = metrics.ranks[straggler.rank_index];
  const auto steps = metrics.window.steps.size();
  const auto when = straggler.pattern == LatePattern::chronic
                        ? std::string("step after step")
                        : fmt::format("in {} of {} steps", straggler.late_steps, steps);
  return fmt::format("{} is {:.1f} ms late {}{}", name_of_rank(rank), straggler.lateness_ms, when,
                     straggler.phase.empty() ? "" : ", delayed in " + straggler.phase);
}

}  // namespace

std::string with_thousands(double value, int decimals) {
  auto text = fmt::format("{:.{}f}", value, decimals);
  const auto point = std::min(text.find('.'), text.size());
  for (auto at = point; at > 3 + (text[0] == '-' ? 1U : 0U); at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string name_of_rank(const RankMetrics& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} ({})", rank.rank, rank.host);
}

std::string verdict_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers) {
  const bool one = metrics.ranks.size() == 1;
  std::string text = fmt::format("{} rank{}", metrics.ranks.size(), one ? "" : "s");
  if (metrics.throughput.value) {
    text += fmt::format(" train{} {} samples/s", one ? "s" : "",
                        with_thousands(*metrics.throughput.value, *metrics.throughput.value < 100 ? 1 : 0));
  }
  if (!metrics.parallel_efficiency.value) return text + ": " + metrics.parallel_efficiency.unknown + ".";
  text += fmt::format("{} {:.1f} % of the time is useful compute", metrics.throughput.value ? ";" : ":",
                      100 * *metrics.parallel_efficiency.value);
  const auto loss = largest_loss(metrics);
  if (metrics.share(loss) < 0.001)
    text += "; nothing else takes 0.1 %.";
  else
    text += fmt::format("; the largest loss, {:.1f} %, is {}.", 100 * metrics.share(loss),
                        loss_texts[static_cast<std::size_t>(loss)]);
  if (!stragglers.empty()) {
    auto late = lateness_text(metrics, stragglers.front());
    late[0] = 'R';
    text += " " + late + ".";
  } else if (!one && !metrics.matches.matches.empty()) {
    text += " No rank stands out as late.";
  }
  return text;
}

std::vector<Finding> findings_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers) {
  std::vector<Finding> findings;
  for (std::size_t i = 1; i < share_count; ++i) {
    const double share = metrics.share(static_cast<Share>(i));
    if (share < 0.01) continue;
    Finding finding{loss_titles[i],
                    fmt::format("{:.1f} % of the ranks' time is {}", 100 * share, loss_texts[i]), 100 * share,
                    changes[i]};
    if (static_cast<Share>(i) == Share::waiting && !stragglers.empty()) {
      finding.title =
          fmt::format("Ranks wait for rank {}", metrics.ranks[stragglers.front().rank_index].rank);
      finding.evidence += "; " + lateness_text(metrics, stragglers.front());
    }
    findings.push_back(std::move(finding));
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.gain_percent > b.gain_percent; });
  if (findings.size() > 5) findings.resize(5);
  return findings;
}

}  // namespace farandole
