#include "farandole/analyzer/findings/verdict.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "farandole/base/run/remedies.h"

namespace farandole {
namespace {

constexpr const char* check_nodes = "check the nodes for other load, clock frequency and uneven batches";

// The description of a loss, and advice.
struct LossTexts {
  const char* text;
  const char* title;
  std::string change;
};

// Indexed by Share. Compute has no entry, because it is not a loss.
std::array<LossTexts, share_count> loss_texts(ProgramKind kind) {
  return {{
      {"", "", ""},
      {"waiting for ranks that arrive late at collectives", "Ranks wait for each other", check_nodes},
      {"communication that does not overlap with compute", "Communication is exposed",
       fmt::format("{} or {}", remedy(Topic::change_buckets, kind), remedy(Topic::send_less, kind))},
      {"loading data", "Data loading delays training",
       "prepare samples on another thread, or keep them in memory"},
      {"writing checkpoints", "Checkpoints delay training", remedy(Topic::save_less, kind)},
      {"evaluation", "Evaluation takes time", remedy(Topic::evaluate_less, kind)},
      {"work outside the phases", "Work outside the phases",
       "add spans for what the training thread does there"},
      {"time in which ranks neither compute nor communicate", "Idle time",
       "check in the timeline what the training thread waits for"},
  }};
}

LossTexts texts_of(Share share, const RunMetrics& metrics) {
  auto texts = loss_texts(metrics.kind)[static_cast<std::size_t>(share)];
  if (share == Share::other && metrics.no_gpu.empty())
    return {
        "time in which the GPUs are idle while their processes work", "GPUs wait for the host",
        "use larger batches, CUDA graphs, fewer and larger kernels, and no synchronization within a step"};
  return texts;
}

Share largest_loss(const RunMetrics& metrics) {
  auto largest = Share::waiting;
  for (std::size_t i = 1; i < share_count; ++i)
    if (metrics.share(static_cast<Share>(i)) > metrics.share(largest)) largest = static_cast<Share>(i);
  return largest;
}

// Late ranks that belong together: one rank, or all ranks of a node.
struct LateGroup {
  std::string name;                // "rank 1 (node7)", "node node7 (ranks 4 to 7)"
  std::vector<std::size_t> ranks;  // Indices into RunMetrics::ranks.
  Straggler worst;
};

std::string node_name(const RunMetrics& metrics, const std::vector<std::size_t>& ranks) {
  const auto [first, last] = std::minmax_element(ranks.begin(), ranks.end());
  return fmt::format("node {} ({} ranks from {} to {})", metrics.ranks[*first].host, ranks.size(),
                     metrics.ranks[*first].rank, metrics.ranks[*last].rank);
}

// Groups chronic stragglers: a node whose ranks are all late is one group.
std::vector<LateGroup> group_by_node(const RunMetrics& metrics, const std::vector<Straggler>& stragglers) {
  std::vector<LateGroup> groups;
  std::set<std::string> nodes_done;
  for (const auto& straggler : stragglers) {
    const auto& rank = metrics.ranks[straggler.rank_index];
    if (straggler.pattern == LatePattern::chronic && !rank.host.empty() && metrics.nodes > 1) {
      if (nodes_done.count(rank.host) > 0) continue;
      std::vector<std::size_t> late;
      for (const auto& other : stragglers)
        if (other.pattern == LatePattern::chronic && metrics.ranks[other.rank_index].host == rank.host)
          late.push_back(other.rank_index);
      const auto there = std::count_if(metrics.ranks.begin(), metrics.ranks.end(),
                                       [&](const RankMetrics& other) { return other.host == rank.host; });
      if (late.size() > 1 && late.size() == static_cast<std::size_t>(there)) {
        nodes_done.insert(rank.host);
        groups.push_back({node_name(metrics, late), late, straggler});
        continue;
      }
    }
    groups.push_back({name_of_rank(rank), {straggler.rank_index}, straggler});
  }
  return groups;
}

std::string lateness_text(const RunMetrics& metrics, const LateGroup& group) {
  const auto when =
      group.worst.pattern == LatePattern::chronic
          ? std::string("in most steps")
          : fmt::format("in {} of {} steps", group.worst.late_steps, metrics.window.steps.size());
  return fmt::format("{} is {:.1f} ms late {}{}", group.name, group.worst.lateness_ms, when,
                     group.worst.phase.empty() ? "" : ", delayed in " + group.worst.phase);
}

std::string change_for(const LateGroup& group, ProgramKind kind) {
  const auto& phase = group.worst.phase;
  if (phase == "data") return "prepare that rank's samples on another thread, and check its storage";
  if (phase == "checkpoint") return remedy(Topic::save_less, kind);
  if (phase == "evaluation") return "distribute the evaluation over the ranks";
  if (group.worst.pattern == LatePattern::one_off)
    return "check what the node did at that time: other jobs, page cache, file system";
  return "check the node for other load, clock frequency and thermal limits, or give it smaller batches";
}

double wait_share_of(const LateGroup& group, const RunMetrics& metrics,
                     const std::vector<WaitCause>& causes) {
  double all = 0;
  double own = 0;
  for (const auto& cause : causes) {
    all += cause.seconds;
    if (std::find(group.ranks.begin(), group.ranks.end(), cause.rank_index) != group.ranks.end())
      own += cause.seconds;
  }
  return all > 0 ? metrics.share(Share::waiting) * own / all : 0;
}

// Returns the causes that no named rank or node explains.
std::vector<WaitCause> causes_left(std::vector<WaitCause> causes, const std::vector<LateGroup>& named) {
  std::erase_if(causes, [&](const WaitCause& cause) {
    return std::any_of(named.begin(), named.end(), [&](const LateGroup& group) {
      return std::find(group.ranks.begin(), group.ranks.end(), cause.rank_index) != group.ranks.end();
    });
  });
  return causes;
}

std::string main_phase(const std::vector<WaitCause>& causes) {
  std::map<std::string, double> seconds;
  for (const auto& cause : causes)
    if (!cause.phase.empty()) seconds[cause.phase] += cause.seconds;
  const auto most = std::max_element(seconds.begin(), seconds.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == seconds.end() ? "" : most->first;
}

// Returns the rank that causes nearly all of the waiting; nullopt if several ranks cause it.
std::optional<std::size_t> only_rank(const std::vector<WaitCause>& causes) {
  std::map<std::size_t, double> seconds;
  double all = 0;
  for (const auto& cause : causes) {
    seconds[cause.rank_index] += cause.seconds;
    all += cause.seconds;
  }
  for (const auto& [rank, own] : seconds)
    if (own > 0.8 * all) return rank;
  return std::nullopt;
}

// Adds a finding for the waiting that is not due to named ranks and nodes.
void add_other_waiting(const RunMetrics& metrics, const std::vector<WaitCause>& causes, double share,
                       std::vector<Finding>& findings) {
  if (share < 0.01) return;
  const auto phase = main_phase(causes);
  const auto held_up = phase.empty() ? "" : ", mostly delayed in " + phase;
  if (const auto rank = only_rank(causes)) {
    findings.push_back(
        {fmt::format("Ranks wait for rank {}", metrics.ranks[*rank].rank),
         fmt::format("{:.1f} % of the ranks' time is waiting for it, in some steps more than in "
                     "others{}",
                     100 * share, held_up),
         100 * share, check_nodes});
    return;
  }
  findings.push_back(
      {"Different ranks are late in different steps",
       fmt::format(
           "{:.1f} % of the ranks' time is waiting for ranks that arrive late at collectives; the late "
           "rank changes{}",
           100 * share, held_up),
       100 * share,
       fmt::format(
           "give each rank its own cores, no other load and equal batches; {} reduce the remaining waiting",
           remedy(Topic::larger_steps, metrics.kind))});
}

// Adds findings for waiting: first those of named ranks or nodes, then the rest.
void add_waiting(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                 const std::vector<WaitCause>& causes, std::vector<Finding>& findings) {
  double left = metrics.share(Share::waiting);
  auto named = group_by_node(metrics, stragglers);
  std::erase_if(named, [](const LateGroup& group) { return group.worst.pattern == LatePattern::rotating; });
  for (const auto& group : named) {
    const double share = wait_share_of(group, metrics, causes);
    left -= share;
    if (share < 0.01) continue;
    const auto& first = metrics.ranks[group.ranks.front()];
    const auto name =
        group.ranks.size() == 1 ? fmt::format("rank {}", first.rank) : fmt::format("node {}", first.host);
    findings.push_back({fmt::format("Ranks wait for {}", name),
                        fmt::format("{:.1f} % of the ranks' time is waiting for it; {}", 100 * share,
                                    lateness_text(metrics, group)),
                        100 * share, change_for(group, metrics.kind), Remedy::no_straggler});
  }
  add_other_waiting(metrics, causes_left(causes, named), left, findings);
}

void add_transfer(const RunMetrics& metrics, double share, Finding& finding) {
  finding.remedy = Remedy::bucket_size;
  if (metrics.overlap.value)
    finding.evidence +=
        fmt::format("; {:.1f} % of communication overlaps with compute", 100 * *metrics.overlap.value);
  if (metrics.transfer_efficiency.value && *metrics.transfer_efficiency.value < 1) {
    const double ideal = 1 - *metrics.transfer_efficiency.value;
    finding.evidence += fmt::format("; on an ideal network the run would be {:.1f} % shorter", 100 * ideal);
    finding.gain_percent = 100 * std::max(ideal, share);
  }
}

}  // namespace

std::string with_thousands(double value, int decimals) {
  auto text = fmt::format("{:.{}f}", value, decimals);
  const auto point = std::min(text.find('.'), text.size());
  for (auto at = point; at > 3 + (text[0] == '-' ? 1U : 0U); at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string times_text(std::uint64_t count) {
  if (count < 2) return count == 0 ? "never" : "once";
  return with_thousands(static_cast<double>(count)) + " times";
}

std::string name_of_rank(const RankMetrics& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} ({})", rank.rank, rank.host);
}

std::string ranks_text(const RunMetrics& metrics) {
  return fmt::format("{} rank{}{}", metrics.size(), metrics.size() == 1 ? "" : "s",
                     metrics.is_sample() ? fmt::format(" ({} of them measured)", metrics.ranks.size()) : "");
}

// For a run without steps: the rank that arrives last at the collective that takes longest, over the window.
std::string last_to_arrive(const RunMetrics& metrics) {
  const auto row = std::find_if(metrics.collectives.begin(), metrics.collectives.end(),
                                [](const CollectiveRow& one) { return one.last_rank.has_value(); });
  if (metrics.window.no_steps.empty() || row == metrics.collectives.end()) return "";
  return fmt::format(
      " Rank {} is the last to arrive in {:.1f} % of {} calls of {}, on average {:.3g} ms after the first rank.",
      *row->last_rank, 100 * *row->last_share.value, with_thousands(static_cast<double>(row->count)),
      row->name, *row->late_us.value * 1e-3);
}

std::string verdict_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers) {
  const bool one = metrics.size() == 1;
  auto text = ranks_text(metrics);
  const auto& rate = metrics.throughput.value ? metrics.throughput : metrics.steps_per_s;
  if (rate.value)
    text += fmt::format(" train{} {} {}/s", one ? "s" : "",
                        with_thousands(*rate.value, *rate.value < 100 ? 1 : 0),
                        metrics.throughput.value ? "samples" : "steps");
  if (!metrics.parallel_efficiency.value) {
    text += ": " + metrics.parallel_efficiency.unknown;
    if (const auto share = metrics.fraction(&RankMetrics::communication); share.value)
      text += fmt::format("; {:.1f} % of the time is communication", 100 * *share.value);
    return text + "." + last_to_arrive(metrics);
  }
  text += fmt::format("{} {:.1f} % of the time is useful compute", rate.value ? ";" : ":",
                      100 * *metrics.parallel_efficiency.value);
  const auto loss = largest_loss(metrics);
  if (metrics.share(loss) < 0.001)
    text += "; nothing else takes 0.1 %.";
  else
    text += fmt::format("; the largest loss, {:.1f} %, is {}.", 100 * metrics.share(loss),
                        texts_of(loss, metrics).text);
  const auto groups = group_by_node(metrics, stragglers);
  const auto named = std::find_if(groups.begin(), groups.end(), [](const LateGroup& group) {
    return group.worst.pattern != LatePattern::rotating;
  });
  const auto of_group = [&](const LateGroup& group) {
    auto late = lateness_text(metrics, group);
    late[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(late[0])));
    return " " + late + ".";
  };
  if (named != groups.end())
    text += of_group(*named);
  else if (groups.size() == 1)
    text += of_group(groups.front());
  else if (!groups.empty())
    text += " Different ranks are late in different steps.";
  else if (const auto last = last_to_arrive(metrics); !last.empty())
    text += last;
  else if (!one && metrics.no_waiting.empty() && !metrics.matches.matches.empty())
    text += " No rank stands out as late.";
  return text;
}

std::vector<Finding> findings_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                                 const std::vector<WaitCause>& causes) {
  std::vector<Finding> findings;
  add_waiting(metrics, stragglers, causes, findings);
  // If compute is unknown, the shares that depend on it are unknown too.
  const auto known = metrics.no_compute.empty() ? share_count : static_cast<std::size_t>(Share::transfer);
  for (std::size_t i = static_cast<std::size_t>(Share::transfer); i < known; ++i) {
    const double share = metrics.share(static_cast<Share>(i));
    if (share < 0.01) continue;
    const auto texts = texts_of(static_cast<Share>(i), metrics);
    Finding finding{texts.title, fmt::format("{:.1f} % of the ranks' time is {}", 100 * share, texts.text),
                    100 * share, texts.change};
    if (static_cast<Share>(i) == Share::transfer) add_transfer(metrics, share, finding);
    if (static_cast<Share>(i) == Share::checkpoint) finding.remedy = Remedy::no_checkpoint;
    findings.push_back(std::move(finding));
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.gain_percent > b.gain_percent; });
  if (findings.size() > 5) findings.resize(5);
  return findings;
}

}  // namespace farandole
