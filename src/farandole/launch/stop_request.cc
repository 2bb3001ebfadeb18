#include "farandole/launch/stop_request.h"

#include <chrono>
#include <csignal>
#include <limits>
#include <poll.h>

#include "farandole/base/clock.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

std::optional<std::int64_t> job_end_s(const Environment& environment) {
  if (const char* end = environment("SLURM_JOB_END_TIME"); end != nullptr && *end != '\0')
    return parse_number<std::int64_t>(end);
  const auto job = own_slurm_job(environment);
  if (job.empty()) return std::nullopt;
  constexpr std::chrono::seconds patience(10);
  const auto state = ask_for_job_state(job, patience);
  const auto end = state.find("EndUnix");
  return end == state.end() ? std::nullopt : parse_number<std::int64_t>(end->second);
}

// Also of a watchdog that only reports before it ends the process.
SignalEvent event_of(int number) {
  return SignalEvent(number, SignalEvent::Afterwards::as_before, SignalEvent::Takes::from_others);
}

}  // namespace

StopRequest::StopRequest()
    : signals_{event_of(SIGTERM), event_of(SIGINT), event_of(SIGUSR1)},
      stop_at_ns_(std::numeric_limits<std::int64_t>::max()) {}

bool StopRequest::before_job_ends(double seconds, const Environment& environment) {
  const auto end = job_end_s(environment);
  constexpr std::int64_t latest = std::numeric_limits<std::int64_t>::max() / 1'000'000'000;
  if (!end || *end < 0 || *end > latest) return false;
  stop_at_ns_ = *end * 1'000'000'000 - static_cast<std::int64_t>(seconds * 1e9);
  return true;
}

// Nothing reads the events, so that every later call also sees them.
bool StopRequest::due() const {
  if (real_time_ns() >= stop_at_ns_) return true;
  std::array<pollfd, 3> polled{};
  for (std::size_t i = 0; i < polled.size(); ++i) polled[i] = {signals_[i].descriptor(), POLLIN, 0};
  return ::poll(polled.data(), polled.size(), 0) > 0;
}

}  // namespace farandole
