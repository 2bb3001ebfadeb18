#include "farandole/capi/process_job.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <pthread.h>
#include <span>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/version.h"
#include "farandole/capi.h"
#include "farandole/capi/group_handle.h"
#include "farandole/capi/reducer_handle.h"
#include "farandole/job/job_errors.h"
#include "farandole/launch/stop_request.h"
#include "farandole/timeline/counters/gpu_counters.h"

namespace farandole::capi {
namespace {

thread_local std::string error_text;

// A pointer, because a process that ends without fdl_close() must not destroy the job while threads use it.
std::atomic<ProcessJob*> current{nullptr};
bool was_forked = false;  // from a rank

std::chrono::nanoseconds time_to_spin(const RankLayout& layout) {
  return layout.node_cores >= 2 * layout.local_size ? std::chrono::microseconds(50)
                                                    : std::chrono::nanoseconds{};
}

// A forked child has none of the threads and must not use the connections.
void leave_in_child() {
  if (current.exchange(nullptr) != nullptr) was_forked = true;
}

const RankLayout& layout() {
  static const RankLayout alone;
  const auto* const own = running();
  return own == nullptr ? alone : own->job.layout();
}

}  // namespace

namespace {

// A program that is recorded does not wait for ever for a rank that is not.
std::optional<std::chrono::nanoseconds> time_to_come() {
  const auto seconds = WatchdogOptions::from_environment().stall_seconds;
  if (seconds == 0) return std::nullopt;
  return std::chrono::nanoseconds(WatchdogOptions::to_ns(seconds));
}

}  // namespace

ProcessJob::ProcessJob()
    : job(time_to_come()), tickets(std::make_shared<Tickets>(time_to_spin(job.layout()))) {}

ProcessJob::ProcessJob(const GuestRank& rank)
    : job(rank), tickets(std::make_shared<Tickets>(std::chrono::nanoseconds{})) {}

ProcessJob::~ProcessJob() = default;

std::unique_ptr<TracedCommunicator> ProcessJob::communicator_of(const int* ranks, int count) {
  if (ranks == nullptr) return job.new_communicator(Waiting::yielding, Wire::exact);
  if (count < 0) throw UserError(fmt::format("a group cannot have {} ranks; give 0 or more", count));
  const std::span list(ranks, static_cast<std::size_t>(count));
  for (const int rank : list)
    if (rank < 0 || rank >= job.layout().size)
      throw UserError(fmt::format("a group with rank {}, but there are only the ranks 0 to {}", rank,
                                  job.layout().size - 1));
  if (std::ranges::find(list, job.layout().rank) == list.end()) return nullptr;
  return job.new_communicator_of(list);
}

ProcessJob* running() {
  return current.load(std::memory_order_acquire);
}

ProcessJob& need_job() {
  if (auto* const job = running(); job != nullptr) return *job;
  throw UserError("Farandole does not run in this process; call fdl_init() first");
}

std::optional<DType> dtype_of(int number) {
  if (number < FDL_FLOAT16 || number > FDL_INT16) return std::nullopt;
  return static_cast<DType>(number);
}

int result_of(const std::exception_ptr& error) {
  if (error == nullptr) return 0;
  try {
    std::rethrow_exception(error);
  } catch (const Error& own) {
    error_text = own.what();
    return static_cast<int>(own.exit_code());
  } catch (const std::exception& other) {
    error_text = other.what();
  } catch (...) {
    error_text = "an exception that is no std::exception was thrown";
  }
  return static_cast<int>(ExitCode::failure);
}

namespace {

void refuse_in_child() {
  if (was_forked)
    throw UserError(
        "a process that was forked from a rank cannot be a rank itself; call fdl_init() in the parent only");
}

void start_recording(std::unique_ptr<ProcessJob> fresh, const std::filesystem::path& folder) {
  auto& job = fresh->job;
  const char* const wish = std::getenv("FARANDOLE_GPU_ACTIVITY");
  const auto gpu_steps = ActivitySteps::parse(wish == nullptr ? "" : wish, "FARANDOLE_GPU_ACTIVITY");
  if (!folder.empty())
    job.start_recording({.run_dir = folder, .gpu_activity = gpu_steps},
                        gpu_of_rank(job.layout().local_rank, std::getenv("CUDA_VISIBLE_DEVICES")));
  if (const auto& why = job.no_gpu_activity(); !job.recorded().empty() && !why.empty() && !gpu_steps.off() &&
                                               job.layout().local_rank == 0 && GpuCounters::any_device())
    log_warning("the GPU's activity is not recorded: {}", why);
  static const bool watches_forks = ::pthread_atfork(nullptr, nullptr, leave_in_child) == 0;
  if (!watches_forks) throw Error("pthread_atfork() failed: there is no memory left");
  current = fresh.release();
}

void start() {
  if (running() != nullptr) return;
  refuse_in_child();
  set_up_log();
  auto fresh = std::make_unique<ProcessJob>();
  auto& job = fresh->job;
  job.world().before_finalize([] { fdl_close(); });
  job.end_alone();
  job.attend_errors(true);
  start_recording(std::move(fresh), run_dir_of_environment());
}

void close() {
  auto* const job = running();
  if (job == nullptr) return;
  job->tickets->close();
  if (job->directory) job->directory->ended(job->exit_code);
  job->job.come_to_end();
  job->job.close_recording();
  job->job.attend_errors(false);
  current = nullptr;
  delete job;
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;
using capi::attempt;

int fdl_abi() {
  return FDL_ABI;
}
const char* fdl_version() {
  static const std::string text(version());
  return text.c_str();
}
const char* fdl_error() {
  return capi::error_text.c_str();
}

int fdl_init() {
  return attempt(capi::start);
}
int fdl_init_guest(int rank, int size, int local_rank, int local_size, const char* run_dir) {
  return attempt([&] {
    if (capi::running() != nullptr) return;
    capi::refuse_in_child();
    if (rank < 0 || rank >= size || local_rank < 0 || local_rank >= local_size || run_dir == nullptr)
      throw UserError(fmt::format("there is no rank {} of {}, locally {} of {}, or no run directory", rank,
                                  size, local_rank, local_size));
    capi::start_recording(std::make_unique<capi::ProcessJob>(GuestRank{rank, size, local_rank, local_size}),
                          run_dir);
  });
}
int fdl_invite(char* text, std::size_t bytes) {
  return attempt([&] {
    const auto invitation = capi::need_job().job.invite();
    if (invitation.size() >= bytes) throw UserError("the invitation needs more bytes; give 4096");
    text[invitation.copy(text, bytes - 1)] = '\0';
  });
}
int fdl_meet(const char* text) {
  return attempt([&] { capi::need_job().job.meet(text); });
}
int fdl_is_running() {
  return capi::running() != nullptr ? 1 : 0;
}
int fdl_close() {
  return attempt(capi::close);
}

void fdl_abort(int code, const char* message) {
  const std::string text = message == nullptr ? "" : message;
  if (auto* const own = capi::running(); own != nullptr) {
    if (own->directory) own->directory->ended(code);
    end_job(own->job, "farandole", {text, static_cast<ExitCode>(code)});
  }
  std::fprintf(stderr, "farandole: %s\n", text.c_str());
  std::_Exit(code);
}

int fdl_rank() {
  return capi::layout().rank;
}
int fdl_size() {
  return capi::layout().size;
}
int fdl_local_rank() {
  return capi::layout().local_rank;
}
int fdl_local_size() {
  return capi::layout().local_size;
}
const char* fdl_host(int rank) {
  const auto& hosts = capi::layout().hosts;
  const auto index = static_cast<std::size_t>(rank);
  return index < hosts.size() ? hosts[index].c_str() : "";
}

int fdl_agree(int asks, int* any) {
  return attempt([&] {
    std::int32_t most = asks != 0 ? 1 : 0;
    capi::need_job().job.communicator().allreduce("wishes", &most, 1, DType::int32, ReduceOp::max);
    *any = most;
  });
}

int fdl_stop_requested() {
  static const StopRequest request;
  return request.due() ? 1 : 0;
}
