#include "farandole/launch/stop_request.h"

#include <chrono>
#include <csignal>
#include <limits>
#include <poll.h>

#include "farandole/base/clock.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/child_process.h"
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

}  // namespace

StopRequest::StopRequest()
    : signals_(signal_descriptor({SIGTERM, SIGINT, SIGUSR1})),
      stop_at_ns_(std::numeric_limits<std::int64_t>::max()) {}

bool StopRequest::before_job_ends(double seconds, const Environment& environment) {
  const auto end = job_end_s(environment);
  constexpr std::int64_t latest = std::numeric_limits<std::int64_t>::max() / 1'000'000'000;
  if (!end || *end < 0 || *end > latest) return false;
  stop_at_ns_ = *end * 1'000'000'000 - static_cast<std::int64_t>(seconds * 1e9);
  return true;
}

// The signals stay pending, so that every later call also sees them.
bool StopRequest::due() const {
  if (real_time_ns() >= stop_at_ns_) return true;
  pollfd poll{signals_.get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

}  // namespace farandole
