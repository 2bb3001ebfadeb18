// Descriptions of a rank's end and last activity.
#include <array>
#include <cstring>
#include <ctime>
#include <fmt/format.h>

#include "farandole/doctor/diagnosis.h"
#include "farandole/doctor/diagnosis_parts.h"

namespace farandole {

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

std::string describe_end(const RankEvidence& rank) {
  if (rank.end) {
    const auto how = rank.end->signal != 0 ? describe_signal(rank.end->signal)
                                           : fmt::format("exit code {}", rank.end->exit_code);
    if (rank.end->told && rank.end->failed()) return "stopped: " + how;
    return rank.end->signal != 0 ? "killed: " + how : how;
  }
  if (rank.log.signal) return "killed: " + describe_signal(*rank.log.signal);
  if (rank.log.exit_code) return fmt::format("exit code {}", *rank.log.exit_code);
  if (rank.is_stopped()) return "is stopped";
  return rank.alive ? "runs" : "unknown";
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
