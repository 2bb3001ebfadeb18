#include "farandole/comm/watch/rank_status.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

std::string quoted(std::string_view text) {
  return text.empty() ? std::string() : fmt::format(" '{}'", text);
}

std::span<const CallStatus> calls_of(const RankStatus& status) {
  return std::span(status.calls).first(std::min<std::size_t>(status.calls_used, RankStatus::most_calls));
}

std::string_view phase_of(Category category) {
  switch (category) {
    case Category::data:
      return "is stuck in data loading";
    case Category::checkpoint:
      return "is stuck in a checkpoint";
    case Category::evaluation:
      return "is stuck in the evaluation";
    case Category::forward:
    case Category::backward:
    case Category::optimizer:
      return "is still computing";
    case Category::step:
      return "is between the phases of a step";
    case Category::wait:
      return "waits for another thread";
    default:
      return "is busy";
  }
}

std::string describe_span(const RankStatus& status) {
  if (!status.in_span) return "is in the program's own code, outside of any phase";
  std::string inside(name_of(status.category));
  if (status.span[0] != '\0' && inside != status.span) inside += quoted(status.span);
  if (status.span_ns > 0) inside += " for " + describe_seconds(status.span_ns);
  return fmt::format("{} ({})", phase_of(status.category), inside);
}

std::string describe_missing(const RankStatus& status) {
  std::string text;
  switch (status.life) {
    case Life::unknown:
      return "does not answer: all ranks of its host are stopped, or the host has failed or is disconnected";
    case Life::ended:
      return "has ended";
    case Life::leaving:
      return "has already ended its session";
    case Life::silent:
      text =
          "is not scheduled (its host is overloaded, or it hangs in the kernel); when it was last seen, it ";
      break;
    case Life::stopped:
      return fmt::format("is stopped (state T); kill -CONT {} resumes it; it {}", status.pid,
                         describe_activity(status));
    case Life::traced:
      text = "is held by a debugger; it ";
      break;
    case Life::running:
      break;
  }
  text += describe_activity(status);
  if (status.in_kernel != 0) text += ", inside the kernel (state D; a file system or device may hang)";
  if (status.detail[0] != '\0') text += fmt::format("; {}", status.detail);
  return text;
}

const CallStatus* call_of(const RankStatus& status, std::uint32_t communicator) {
  for (const auto& call : calls_of(status))
    if (call.key.communicator == communicator) return &call;
  return nullptr;
}

bool waits_in(const RankStatus& status, const CallKey& key) {
  const auto* call = call_of(status, key.communicator);
  return call != nullptr && call->in_flight != 0 && call->key == key &&
         (status.life == Life::running || status.life == Life::silent);
}

// The call in which most ranks wait. If several have equally many, the one with the longest wait.
const CallStatus* most_waited_in(std::span<const RankStatus> statuses) {
  const CallStatus* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const auto& status : statuses) {
    for (const auto& call : calls_of(status)) {
      if (!waits_in(status, call.key)) continue;
      const auto ranks = std::count_if(statuses.begin(), statuses.end(),
                                       [&](const auto& one) { return waits_in(one, call.key); });
      if (best == nullptr || ranks > most || (ranks == most && call.waited_ns > best->waited_ns)) {
        best = &call;
        most = ranks;
      }
      if (2 * most > static_cast<std::ptrdiff_t>(statuses.size())) return best;
    }
  }
  return best;
}

// True if the collective lacks this rank. A rank that does not know the communicator is not in its group. A
// rank that has begun a later collective has completed this one.
bool is_missing(const RankStatus& status, const CallKey& key) {
  if (waits_in(status, key)) return false;
  if (status.life == Life::unknown || status.life == Life::leaving || status.life == Life::ended) return true;
  const auto* call = call_of(status, key.communicator);
  const bool is_ahead = call != nullptr && call->entered > key.sequence + 1;
  // A stopped rank may delay a collective that it has already left, because its messages are not sent. Its
  // last status may be older than the communicator.
  if (status.life == Life::stopped || status.life == Life::traced) return !is_ahead;
  if (call == nullptr || is_ahead) return false;
  return call->entered <= key.sequence;
}

bool waits_elsewhere(const RankStatus& status) {
  return (status.life == Life::running || status.life == Life::silent) && waiting_in(status) != nullptr;
}

}  // namespace

std::string describe_call(const CallStatus& call) {
  return fmt::format("{} #{}{}", call.operation, call.key.sequence, quoted(call.name));
}

const CallStatus* waiting_in(const RankStatus& status) {
  const CallStatus* longest = nullptr;
  for (const auto& call : calls_of(status))
    if (call.in_flight != 0 && (longest == nullptr || call.waited_ns > longest->waited_ns)) longest = &call;
  return longest;
}

std::string describe_activity(const RankStatus& status) {
  if (const auto* call = waiting_in(status); call != nullptr)
    return fmt::format("is in {} for {}", describe_call(*call), describe_seconds(call->waited_ns));
  return describe_span(status);
}

std::string own_report(const OwnReport& report) {
  const RankStatus& status = report.status;
  const auto* call = waiting_in(status);
  std::string text;
  if (report.missed_in && (call == nullptr || call->key != *report.missed_in))
    text = fmt::format("keeps other ranks waiting: it {}", describe_activity(status));
  else
    text = fmt::format("is stalled: it {}", describe_activity(status));
  text += fmt::format("; pid {} on {}", status.pid, report.host);
  if (call != nullptr) {
    if (call->bytes > 0) text += fmt::format("; {} bytes", call->bytes);
    if (status.in_span) text += fmt::format("; the training thread {}", describe_span(status));
  }
  if (status.detail[0] != '\0') text += fmt::format("; {}", status.detail);
  if (report.meaning && !report.meaning->contents.empty())
    text += fmt::format("\n  it contains: {}", describe_list(report.meaning->contents, 24));
  if (!report.thread) {
    text += fmt::format("\n  the training thread does not answer{}",
                        status.in_kernel != 0 ? ": it is inside the kernel (state D)" : "");
  } else {
    text += "\n  the training thread's stack:";
    for (const auto& frame : report.thread->stack) text += "\n    " + frame;
  }
  return text;
}

std::optional<StallSummary> summarize_stall(
    std::span<const RankStatus> statuses, const std::vector<std::string>& hosts,
    const std::function<std::optional<CollectiveRegistry::Meaning>(const CallKey&)>& explain) {
  const CallStatus* const call = most_waited_in(statuses);
  if (call == nullptr) return std::nullopt;
  StallSummary summary;
  summary.call = *call;
  std::int64_t& longest = summary.call.waited_ns;
  for (std::size_t r = 0; r < statuses.size(); ++r) {
    if (waits_in(statuses[r], call->key)) {
      summary.waiting.push_back(static_cast<int>(r));
      longest = std::max(longest, call_of(statuses[r], call->key.communicator)->waited_ns);
    } else if (is_missing(statuses[r], call->key)) {
      summary.missing.push_back(static_cast<int>(r));
    }
  }
  const bool one = summary.waiting.size() == 1;
  summary.text = fmt::format("stall: {} {} waited {} in {}", describe_ranks(summary.waiting),
                             one ? "has" : "have", describe_seconds(longest), describe_call(*call));
  if (const auto meaning = explain(call->key); meaning && !meaning->contents.empty())
    summary.text += fmt::format(" ({})", describe_list(meaning->contents, 6));
  if (summary.missing.empty())
    summary.text += "\n  no rank is missing: the network or a file system hangs or is very slow";
  // Missing ranks that wait in another collective are more likely victims than the root cause.
  const auto waits = [&](int rank) { return waits_elsewhere(statuses[static_cast<std::size_t>(rank)]); };
  auto ordered = summary.missing;
  const auto victims = std::stable_partition(ordered.begin(), ordered.end(), std::not_fn(waits));
  const bool root_cause_known = victims != ordered.begin();
  constexpr std::size_t most_lines = 32;
  for (std::size_t i = 0; i < std::min(most_lines, ordered.size()); ++i) {
    const auto r = static_cast<std::size_t>(ordered[i]);
    const auto& status = statuses[r];
    const auto pid = status.pid != 0 ? fmt::format("pid {} on ", status.pid) : "on ";
    summary.text += fmt::format("\n  rank {} ({}{}) is missing{}: it {}", r, pid, hosts.at(r),
                                root_cause_known && waits(ordered[i]) ? ", but waits itself" : "",
                                describe_missing(status));
  }
  if (ordered.size() > most_lines)
    summary.text += fmt::format("\n  in total, {} are missing", describe_ranks(summary.missing));
  return summary;
}

}  // namespace farandole
