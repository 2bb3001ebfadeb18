#include "farandole/analyzer/findings/verdict.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "farandole/analyzer/findings/core_sharing.h"
#include "farandole/analyzer/model/interval.h"
#include "farandole/base/run/remedies.h"

namespace farandole {
namespace {

constexpr const char* check_nodes = "check the nodes for other load, clock frequency and uneven batches";

// The description of a loss, and advice.
struct LossTexts {
  std::string text;
  const char* title;
  std::string change;
};

// Indexed by Share. Compute has no entry, because it is not a loss.
std::array<LossTexts, share_count> loss_texts(ProgramKind kind) {
  return {{
      {"", "", ""},
      {"waiting for a core", "Ranks wait for a core",
       "give each rank cores of its own (srun --cpus-per-task and --cpu-bind=cores, mpirun --bind-to core), or "
       "start fewer ranks and threads"},
      {"waiting for ranks that arrive late at collectives", "Ranks wait for each other", check_nodes},
      {"communication that does not overlap with compute", "Communication is exposed",
       fmt::format("{} or {}", remedy(Topic::change_buckets, kind), remedy(Topic::send_less, kind))},
      {"copies from, to and within GPUs, while no kernel runs", "Copies delay the GPUs",
       "keep the data on the GPU, copy from pinned memory, and copy the next batch on a stream of its own while "
       "kernels run"},
      {"loading data", "Data loading delays training",
       "prepare samples on another thread, or keep them in memory"},
      {"writing checkpoints", "Checkpoints delay training", remedy(Topic::save_less, kind)},
      {"evaluation", "Evaluation takes time", remedy(Topic::evaluate_less, kind)},
      {"work outside the phases", "Work outside the phases",
       kind == ProgramKind::python
           ? "prepare batches with workers of a DataLoader, if it is their preparation before the forward pass; "
             "farandole.record.span(\"NAME\") names in the timeline what it is"
           : "add spans for what the training thread does there"},
      {"time in which ranks neither compute nor communicate", "Idle time",
       "check in the timeline what the training thread waits for"},
  }};
}

// Describes the collectives of a step if they are many and small: "64 of 4.1 kB in a step".
std::string small_collectives(const RunMetrics& metrics) {
  const auto steps = metrics.window.steps.size();
  const auto& matches = metrics.matches.matches;
  if (steps == 0 || matches.size() < 8 * steps) return "";
  std::vector<double> bytes;
  for (const auto& match : matches) bytes.push_back(static_cast<double>(match.bytes));
  const double median = quantile(std::move(bytes), 0.5);
  if (median > 256 << 10) return "";
  return fmt::format("{:.0f} of {:.1f} kB in a step",
                     static_cast<double>(matches.size()) / static_cast<double>(steps), median * 1e-3);
}

LossTexts texts_of(Share share, const RunMetrics& metrics) {
  auto texts = loss_texts(metrics.kind)[static_cast<std::size_t>(share)];
  if (share == Share::other && metrics.no_gpu.empty()) {
    if (idle_cause_of_work(metrics) == IdleCause::queue)
      return {"time in which the GPUs are idle between kernels that are queued (kernel wait)",
              "GPUs idle: kernel wait", "use CUDA graphs, and fewer and larger kernels"};
    return {
        "time in which the GPUs are idle because their processes have queued no work (host wait)",
        "GPUs idle: host wait",
        "use larger batches, CUDA graphs, fewer and larger kernels, and no synchronization within a step"};
  }
  if (share == Share::idle && metrics.no_gpu.empty()) texts.text = "time in which the GPUs are idle";
  if (const auto small = share == Share::transfer ? small_collectives(metrics) : ""; !small.empty()) {
    texts.text += fmt::format(", in small collectives ({})", small);
    texts.title = "Communication of small buckets is exposed";
    if (metrics.kind != ProgramKind::fit)
      texts.change = fmt::format("use larger buckets ({})", remedy(Topic::set_buckets, metrics.kind));
  }
  if (share == Share::core) texts.text += ": " + find_core_sharing(metrics).who;
  return texts;
}

// The largest cause of waiting, if it makes at least half of it: " (mostly rank 1's backward)".
std::string main_cause(const LossGroup& waiting) {
  const auto& part = waiting.parts.front();
  if (2 * part.fraction < waiting.fraction) return "";
  return fmt::format(" (mostly {})", cause_in(part));
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
  if (phase == "other")
    return "look in the timeline what that rank does outside the phases, such as preparing its batches";
  return "check the node for other load, clock frequency and thermal limits, or give it smaller batches";
}

using CausedLosses = std::vector<CausedLoss>;

// Removes the causes with these ranks from `causes`, and returns them.
CausedLosses take_causes(CausedLosses& causes, const std::vector<std::size_t>& ranks) {
  const auto of_others = std::stable_partition(causes.begin(), causes.end(), [&](const CausedLoss& loss) {
    return std::find(ranks.begin(), ranks.end(), loss.cause.rank_index) == ranks.end();
  });
  CausedLosses taken(of_others, causes.end());
  causes.erase(of_others, causes.end());
  return taken;
}

double fraction_of(const CausedLosses& causes) {
  double sum = 0;
  for (const auto& loss : causes) sum += loss.waiting + loss.own;
  return sum;
}

// Returns the longest time that one rank waited for these ranks, as a part of the window: the run is at most
// this much shorter without the waiting.
double longest_wait(const RunMetrics& metrics, const CausedLosses& causes) {
  std::set<std::uint32_t> last;
  for (const auto& loss : causes) last.insert(static_cast<std::uint32_t>(loss.cause.rank_index));
  std::int64_t longest = 0;
  for (const auto& parts : metrics.matches.parts) {
    std::vector<Interval> waits;
    for (const auto& part : parts)
      if (const auto& match = metrics.matches.matches[part.match]; last.count(match.last_rank) > 0)
        waits.push_back(wait_of(match, part));
    longest = std::max(longest, IntervalSet(std::move(waits)).measure());
  }
  return metrics.window_ns() > 0 ? static_cast<double>(longest) / metrics.window_ns() : 0;
}

// Returns the phase that causes most of the waiting; "" if none does.
std::string main_phase(const CausedLosses& causes) {
  std::map<std::string, double> fractions;
  for (const auto& loss : causes)
    if (!loss.cause.phase.empty()) fractions[loss.cause.phase] += loss.waiting + loss.own;
  const auto most = std::max_element(fractions.begin(), fractions.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == fractions.end() ? "" : most->first;
}

// Returns the rank that causes nearly all of the waiting; nullopt if several ranks cause it.
std::optional<std::size_t> only_rank(const CausedLosses& causes) {
  std::map<std::size_t, double> fractions;
  for (const auto& loss : causes) fractions[loss.cause.rank_index] += loss.waiting + loss.own;
  for (const auto& [rank, own] : fractions)
    if (own > 0.8 * fraction_of(causes)) return rank;
  return std::nullopt;
}

// A finding, and its place in the order of findings.
struct RankedFinding {
  Finding finding;
  Share share = Share::idle;
  double fraction = 0;
};

// The evidence becomes "12.3 % of the ranks' time is waiting for EVIDENCE".
RankedFinding of_waiting(const RunMetrics& metrics, const CausedLosses& causes, Finding finding) {
  const double fraction = fraction_of(causes);
  double own = 0;
  for (const auto& loss : causes) own += loss.own;
  finding.evidence = fmt::format("{:.1f} % of the ranks' time is {}waiting for {}", 100 * fraction,
                                 own > 0.05 * fraction ? "this delay and " : "", finding.evidence);
  finding.gain_percent = 100 * std::max(fraction, longest_wait(metrics, causes));
  if (main_phase(causes) == "checkpoint") finding.change = remedy(Topic::save_less, metrics.kind);
  return {std::move(finding), Share::waiting, fraction};
}

// Returns a finding for the waiting that is not due to named ranks and nodes.
RankedFinding of_other_waiting(const RunMetrics& metrics, const CausedLosses& causes) {
  const auto phase = main_phase(causes);
  const auto held_up = phase.empty() ? "" : ", mostly delayed in " + phase;
  if (const auto rank = only_rank(causes))
    return of_waiting(metrics, causes,
                      {fmt::format("Ranks wait for rank {}", metrics.ranks[*rank].rank),
                       "it, in some steps more than in others" + held_up, 0, check_nodes});
  return of_waiting(
      metrics, causes,
      {"Different ranks are late in different steps",
       "ranks that arrive late at collectives; the late rank changes" + held_up, 0,
       fmt::format(
           "give each rank its own cores, no other load and equal batches; {} reduce the remaining waiting",
           remedy(Topic::larger_steps, metrics.kind))});
}

// Adds findings for waiting: first those of named ranks or nodes, then the rest.
void add_waiting(const RunMetrics& metrics, const std::vector<Straggler>& stragglers, CausedLosses causes,
                 std::vector<RankedFinding>& findings) {
  auto named = group_by_node(metrics, stragglers);
  std::erase_if(named, [](const LateGroup& group) { return group.worst.pattern == LatePattern::rotating; });
  for (const auto& group : named) {
    const auto own = take_causes(causes, group.ranks);
    if (fraction_of(own) < 0.01) continue;
    const auto& first = metrics.ranks[group.ranks.front()];
    const auto name =
        group.ranks.size() == 1 ? fmt::format("rank {}", first.rank) : fmt::format("node {}", first.host);
    findings.push_back(
        of_waiting(metrics, own,
                   {fmt::format("Ranks wait for {}", name), "it; " + lateness_text(metrics, group), 0,
                    change_for(group, metrics.kind)}));
  }
  if (fraction_of(causes) >= 0.01) findings.push_back(of_other_waiting(metrics, causes));
}

void add_transfer(const RunMetrics& metrics, Finding& finding) {
  if (metrics.overlap.value)
    finding.evidence +=
        fmt::format("; {:.1f} % of communication overlaps with compute", 100 * *metrics.overlap.value);
  if (metrics.transfer_efficiency.value && *metrics.transfer_efficiency.value < 1) {
    const double most = 100 * (1 - *metrics.transfer_efficiency.value);
    finding.evidence += fmt::format("; on an ideal network the run would be at most {:.1f} % shorter", most);
    finding.gain_percent = std::max(most, finding.gain_percent);
  }
}

void add_core(const RunMetrics& metrics, Finding& finding) {
  const auto sharing = find_core_sharing(metrics);
  finding.gain_percent = std::max(finding.gain_percent, 100 * sharing.longest);
  if (!sharing.idle.empty()) finding.evidence += ", while " + sharing.idle;
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
      " Rank {} is the last to arrive in {:.1f} % of {} call{} of {}{}, on average {:.3g} ms after the first rank.",
      *row->last_rank, 100 * *row->last_share.value, with_thousands(static_cast<double>(row->last_count)),
      row->last_count == 1 ? "" : "s", row->name, row->last_count < row->count ? " with known arrivals" : "",
      *row->late_us.value * 1e-3);
}

std::string verdict_of(const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                       const std::vector<WaitCause>& causes) {
  const bool one = metrics.size() == 1;
  auto text = ranks_text(metrics);
  const auto& rate = metrics.throughput.value ? metrics.throughput : metrics.steps_per_s;
  if (rate.value)
    text += fmt::format(" train{} {} {}/s", one ? "s" : "",
                        with_thousands(*rate.value, *rate.value < 100 ? 1 : 0),
                        metrics.throughput.value ? "samples" : "steps");
  if (!metrics.parallel_efficiency.value) {
    text += ": " + metrics.parallel_efficiency.unknown;
    if (const auto share = metrics.fraction(&RankMetrics::communication); share.value > 0.)
      text += fmt::format("; {:.1f} % of the time is communication", 100 * *share.value);
    for (const auto part : {Share::evaluation, Share::data, Share::core})
      if (const double share = metrics.share(part); share >= 0.05)
        text += fmt::format("; {:.1f} % is {}", 100 * share, texts_of(part, metrics).text);
    return text + "." + last_to_arrive(metrics);
  }
  text += fmt::format("{} {:.1f} % of the time is useful compute", rate.value ? ";" : ":",
                      100 * *metrics.parallel_efficiency.value);
  const auto losses = group_losses(find_losses(metrics, causes));
  if (losses.empty() || losses.front().fraction < 0.001)
    text += "; nothing else takes 0.1 %.";
  else
    text += fmt::format("; the largest loss, {:.1f} %, is {}{}.", 100 * losses.front().fraction,
                        texts_of(losses.front().share, metrics).text,
                        losses.front().share == Share::waiting ? main_cause(losses.front()) : "");
  if (rate.value && !one && is_of_users(metrics.kind) && metrics.matches.matches.empty())
    text +=
        " No collective was recorded: each rank trains a model of its own, or communicates in a way that is not "
        "recorded.";
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
  std::vector<RankedFinding> ranked;
  auto caused = find_caused_losses(metrics, causes);
  std::array<double, share_count> shares{};
  for (std::size_t i = 0; i < share_count; ++i) shares[i] = metrics.share(static_cast<Share>(i));
  if (const auto losses = group_losses(find_losses(metrics, causes)); !losses.empty()) {
    shares.fill(0);
    for (const auto& group : losses) shares[static_cast<std::size_t>(group.share)] = group.fraction;
  }
  std::erase_if(caused, [](const CausedLoss& loss) { return loss.cause.phase == core_wait; });
  add_waiting(metrics, stragglers, std::move(caused), ranked);
  for (std::size_t i = 1; i < share_count; ++i) {
    const auto share = static_cast<Share>(i);
    // If compute is unknown, most shares are unknown too.
    if (share == Share::waiting || (!metrics.no_compute.empty() && share != Share::core)) continue;
    if (shares[i] < 0.01) continue;
    const auto texts = texts_of(share, metrics);
    Finding finding{texts.title,
                    fmt::format("{:.1f} % of the ranks' time is {}", 100 * shares[i], texts.text),
                    100 * shares[i], texts.change};
    if (share == Share::core) add_core(metrics, finding);
    if (share == Share::transfer) add_transfer(metrics, finding);
    ranked.push_back({std::move(finding), share, shares[i]});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const RankedFinding& a, const RankedFinding& b) {
    const auto of_group = [&](const RankedFinding& one) {
      return shares[static_cast<std::size_t>(one.share)];
    };
    return std::tuple(of_group(b), b.share, b.fraction) < std::tuple(of_group(a), a.share, a.fraction);
  });
  if (ranked.size() > 5) ranked.resize(5);
  std::vector<Finding> findings;
  for (auto& one : ranked) findings.push_back(std::move(one.finding));
  return findings;
}

}  // namespace farandole
