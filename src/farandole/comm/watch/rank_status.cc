#include "farandole/comm/watch/rank_status.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

std::string quoted(std::string_view text) {
  return text.empty() ? std::string() : fmt::format(" '{}'", text);
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

std::string describe_span(const RankStatus& status, std::string_view place) {
  const auto at = place.empty() ? std::string() : fmt::format(", {}", place);
  if (!status.in_span) return "is in the program's own code, outside of any phase" + at;
  const std::string_view category = name_of(status.category);
  const auto name = category == status.span ? std::string() : quoted(status.span);
  const auto lasts = status.span_ns > 0 ? " for " + describe_seconds(status.span_ns) : std::string();
  const std::string phase(phase_of(status.category));
  if (!at.empty() && name.empty()) return phase + at + (lasts.empty() ? "" : "," + lasts);
  return fmt::format("{}{} ({}{}{})", phase, at, category, name, lasts);
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

RankProgress progress_of(const RankStatus& status, int rank) {
  RankProgress progress;
  progress.rank = rank;
  if (status.life == Life::stopped || status.life == Life::traced)
    progress.state = RankProgress::State::stopped;
  else if (status.life != Life::running && status.life != Life::silent)
    progress.state = RankProgress::State::gone;
  for (const auto& call : calls_of(status))
    progress.calls.push_back({call.key.communicator, call.entered, call.in_flight != 0, -call.waited_ns,
                              call.operation, call.name});
  return progress;
}

// Ranks that call different collectives as the same one wait forever. "" if these ranks do not.
std::string describe_mismatch(std::span<const RankStatus> statuses, const StalledCall& stalled) {
  std::vector<std::pair<std::string, std::vector<int>>> places;
  bool mismatch = false;
  const CallStatus* first = nullptr;
  for (const int rank : stalled.waiting) {
    const auto& status = statuses[static_cast<std::size_t>(rank)];
    for (const auto& call : calls_of(status)) {
      if (call.key != stalled.key) continue;
      if (first == nullptr) first = &call;
      mismatch |= !is_same_call(*first, call);
      auto text = describe_call(call);
      if (call.bytes > 0) text += fmt::format(" of {} bytes", call.bytes);
      if (status.place[0] != '\0') text += fmt::format(" at {}", status.place);
      const auto there =
          std::find_if(places.begin(), places.end(), [&](const auto& one) { return one.first == text; });
      (there == places.end() ? places.emplace_back(std::move(text), std::vector<int>()) : *there)
          .second.push_back(rank);
    }
  }
  if (!mismatch) return "";
  std::string text = "\n  the ranks call different collectives: ";
  constexpr std::size_t most_places = 8;
  for (std::size_t i = 0; i < std::min(places.size(), most_places); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", describe_ranks(places[i].second), places[i].first);
  return text + "; let all ranks call the same collectives in the same order";
}

}  // namespace

bool is_same_call(const CallStatus& a, const CallStatus& b) {
  const std::string_view operation = a.operation;
  const bool sized = operation == "allreduce" || operation == "broadcast" || operation == "reduce";
  return operation == b.operation && (!sized || a.bytes == b.bytes);
}

std::span<const CallStatus> calls_of(const RankStatus& status) {
  return std::span(status.calls).first(std::min<std::size_t>(status.calls_used, RankStatus::most_calls));
}

bool is_blocked(const RankStatus& status) {
  const auto calls = calls_of(status);
  return std::any_of(calls.begin(), calls.end(),
                     [&](const CallStatus& call) { return blocks(call, status.thread); });
}

bool is_working(const RankStatus& status) {
  return status.life == Life::running && status.busy && !is_blocked(status);
}

std::string describe_call(const CallStatus& call) {
  if (call.key.communicator == CollectiveRegistry::session_end) return "the end of the session";
  if (is_setup(call)) return "the making of an optimizer or group";
  return describe_collective(call.operation, call.key.sequence, call.name);
}

bool is_setup(const CallStatus& call) {
  return std::string_view(call.operation) == SetupCall::operation;
}

const CallStatus* waiting_in(const RankStatus& status) {
  const CallStatus* longest = nullptr;
  for (const auto& call : calls_of(status))
    if (call.in_flight != 0 && (longest == nullptr || call.waited_ns > longest->waited_ns)) longest = &call;
  return longest;
}

std::string describe_activity(const RankStatus& status) {
  if (const auto* call = waiting_in(status); call != nullptr)
    return fmt::format("is in {} for {}{}", describe_call(*call), describe_seconds(call->waited_ns),
                       status.place[0] != '\0' ? fmt::format(" at {}", status.place) : "");
  return describe_span(status, status.place);
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
    if (status.in_span) text += fmt::format("; the training thread {}", describe_span(status, ""));
  }
  if (status.detail[0] != '\0') text += fmt::format("; {}", status.detail);
  if (report.meaning && !report.meaning->contents.empty())
    text += fmt::format("\n  it contains: {}", describe_list(report.meaning->contents, 24));
  if (!report.thread) {
    text += fmt::format("\n  the training thread does not answer{}",
                        status.in_kernel != 0 ? ": it is inside the kernel (state D)" : "");
  } else {
    text += report.thread->place.empty()
                ? "\n  the training thread's stack:"
                : fmt::format("\n  the training thread is at {}; its stack:", report.thread->place);
    for (const auto& frame : report.thread->stack) text += "\n    " + frame;
  }
  return text;
}

std::optional<StallSummary> summarize_stall(
    std::span<const RankStatus> statuses, const std::vector<std::string>& hosts,
    const std::function<std::optional<CollectiveRegistry::Meaning>(const CallKey&)>& explain) {
  std::vector<RankProgress> progress;
  for (std::size_t r = 0; r < statuses.size(); ++r)
    progress.push_back(progress_of(statuses[r], static_cast<int>(r)));
  auto stalled = find_stalled_call(progress);
  if (!stalled) return std::nullopt;
  StallSummary summary{std::move(*stalled), ""};
  const auto& [key, text, waiting, missing, victims, since_ns] = summary.call;
  summary.text = fmt::format("stall: {} {} waited {} in {}", describe_ranks(waiting),
                             waiting.size() == 1 ? "has" : "have", describe_seconds(-since_ns), text);
  if (const auto meaning = explain(key); meaning && !meaning->contents.empty())
    summary.text += fmt::format(" ({})", describe_list(meaning->contents, 6));
  const auto mismatch = describe_mismatch(statuses, summary.call);
  summary.text += mismatch;
  if (missing.empty() && mismatch.empty())
    summary.text += "\n  no rank is missing: the network or a file system hangs or is very slow";
  // Ranks that wait in another collective are more likely victims than the root cause.
  const auto causes = missing.size() - victims;
  constexpr std::size_t most_lines = 32;
  for (std::size_t i = 0; i < std::min(most_lines, missing.size()); ++i) {
    const auto r = static_cast<std::size_t>(missing[i]);
    const auto& status = statuses[r];
    const auto pid = status.pid != 0 ? fmt::format("pid {} on ", status.pid) : "on ";
    summary.text +=
        fmt::format("\n  rank {} ({}{}) is missing{}: it {}", r, pid, hosts.at(r),
                    causes > 0 && i >= causes ? ", but waits itself" : "", describe_missing(status));
  }
  if (missing.size() > most_lines) {
    auto all = missing;
    std::sort(all.begin(), all.end());
    summary.text += fmt::format("\n  in total, {} are missing", describe_ranks(all));
  }
  return summary;
}

}  // namespace farandole
