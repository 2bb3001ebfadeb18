#include "farandole/train/session.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <unistd.h>

#include "farandole/base/cores.h"
#include "farandole/base/error.h"
#include "farandole/base/heap.h"
#include "farandole/base/log.h"
#include "farandole/base/run_folder.h"
#include "farandole/comm/group_agreement.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/recording/trace_requests.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/timeline/counters/gpu_choice.h"
#include "farandole/timeline/recorder/recorder_place.h"

namespace farandole {
namespace {

// A failure that all ranks know of: the job may end in order.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank) : Error(message, code), first_rank(rank) {}
  const int first_rank;
};

void share_cores(int local_size) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  torch::set_num_threads(std::max(1, has_own_cores() ? allowed_cores() : allowed_cores() / local_size));
}

}  // namespace

Session::Session(int, const char* const*)
    : job_(std::make_unique<MpiJob>()),
      timeline_(std::make_unique<Timeline>()),
      trace_asked_(SIGUSR2, SignalEvent::Afterwards::ignored),
      exceptions_at_start_(std::uncaught_exceptions()) {
  set_up_log(rank(), size());
  share_cores(local_size());
  keep_freed_memory();
  const auto stalls = WatchdogOptions::from_environment();
  if (size() > 1) watchdog_ = make_watchdog(job_->layout(), calls_);
  watch_stalls(stalls);
  collectives_.use(new_communicator(Waiting::yielding));
  if (const auto folder = run_dir_of_environment(); !folder.empty()) start_recording({.run_dir = folder});
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    fmt::print(stderr,
               "farandole: rank {} on {}: an exception leaves the session's scope, so the job ends; catch it "
               "inside to see it\n",
               rank(), node());
    is_ending(ExitCode::failure);
    MpiJob::abort(static_cast<int>(ExitCode::failure));
  }
  try {
    publish_timeline();
  } catch (const std::exception& error) {
    // Where rank 0 could not write, the others still wait for it to take their records.
    spdlog::error("the timeline could not be published: {}", error.what());
    is_ending(ExitCode::failure);
    MpiJob::abort(static_cast<int>(ExitCode::failure));
  }
}

Waiting Session::waiting_for_gradients() const {
  return outnumber_cores(local_size()) ? Waiting::yielding : Waiting::spin;
}

std::unique_ptr<TracedCommunicator> Session::traced(std::unique_ptr<Communicator> communicator,
                                                    std::uint16_t number) {
  return std::make_unique<TracedCommunicator>(std::move(communicator), *timeline_, number,
                                              watchdog_ != nullptr ? &calls_ : nullptr);
}

// Ranks that have joined would not take part.
void Session::refuse_while_joining() const {
  if (collectives_.joining())
    throw UserError("optimizers, groups and communicators cannot be made inside a Join; make them before it");
}

std::unique_ptr<TracedCommunicator> Session::new_communicator(Waiting waiting) {
  refuse_while_joining();
  return traced(job_->new_communicator(waiting), communicators_++);
}

std::unique_ptr<TracedCommunicator> Session::new_communicator(Waiting waiting, Group& group) {
  refuse_while_joining();
  return traced(job_->new_communicator(waiting, group.ranks()), group.next_number());
}

std::unique_ptr<Group> Session::new_group(std::span<const int> ranks) {
  refuse_while_joining();
  check_group_agreement(communicator(), ranks);
  const auto number = communicators_;
  communicators_ = static_cast<std::uint16_t>(communicators_ + Group::numbers);
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return nullptr;
  return std::unique_ptr<Group>(new Group({ranks.begin(), ranks.end()}, number,
                                          traced(job_->new_communicator(Waiting::yielding, ranks), number)));
}

void Session::watch_stalls(const WatchdogOptions& options) {
  if (watchdog_ != nullptr) watchdog_->set_options(options);
}

bool Session::is_ending(ExitCode code) {
  if (watchdog_ == nullptr) return true;
  const bool is_news = code != ExitCode::peer_lost || watchdog_->claim_loss();
  watchdog_->leave(code != ExitCode::peer_lost);
  return is_news;
}

void Session::start_recording(const RecordingOptions& options) {
  collectives_.use(nullptr);
  gpu_activity_.reset();
  trace_requests_.reset();
  recording_.reset();
  timeline_ = std::make_unique<Timeline>();
  communicators_ = 0;
  collectives_.use(new_communicator(Waiting::yielding));
  if (options.window.off()) return tell_run_dir(options.run_dir);
  const auto wish =
      options.recorder_dir ? RecorderWish{*options.recorder_dir, "--recorder-dir"} : wished_place();
  const auto ranks_here = static_cast<std::size_t>(local_size());
  RecorderPlace place;
  together([&] { place = place_recorder(options.run_dir, wish, options.recorder_bytes * ranks_here); });
  tell_run_dir(options.run_dir);
  std::unique_ptr<Timeline> timeline;
  together([&] {
    timeline = std::make_unique<Timeline>(TimelineOptions{recorder_file(options.run_dir, rank()),
                                                          options.window, options.recorder_bytes, rank(),
                                                          size(), node(), place.folder, place.chosen});
  });
  timeline_ = std::move(timeline);
  timeline_->name_thread("training");
  timeline_->set_metadata("farandole", FARANDOLE_VERSION);
  timeline_->set_metadata("libtorch", TORCH_VERSION);
  timeline_->set_metadata("mpi", MpiJob::library_version());
  gpu_activity_ = GpuActivity::start(*timeline_, options.gpu_activity, no_gpu_activity_);
  recording_ = std::make_unique<Recording>(
      job_->new_channel(), *timeline_,
      TraceOptions{.run_dir = options.run_dir,
                   .merge_limit = options.merge_limit,
                   .gpu = gpu_of_rank(local_rank(), std::getenv("CUDA_VISIBLE_DEVICES"))});
  trace_requests_ = std::make_unique<TraceRequests>(
      job_->layout(), trace_asked_, *timeline_, TraceRequestOptions{options.run_dir, options.merge_limit});
  communicators_ = 0;
  collectives_.use(new_communicator(Waiting::yielding));
}

void Session::set_step(std::int64_t step) {
  timeline_->set_step(step);
  if (gpu_activity_ != nullptr) gpu_activity_->mark_step(step);
}

void Session::publish_timeline() {
  gpu_activity_.reset();
  if (recording_ == nullptr) return;
  trace_requests_.reset();
  const auto recording = std::exchange(recording_, nullptr);
  recording->publish();
}

void Session::together(const std::function<void()>& work) {
  std::string message;
  int code = 0;
  try {
    work();
  } catch (const Error& error) {
    message = error.what();
    code = static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    message = error.what();
    code = static_cast<int>(ExitCode::failure);
  }
  int first = code != 0 ? rank() : size();
  communicator().allreduce("agreement", &first, 1, DType::int32, ReduceOp::min);
  if (first == size()) return;
  communicator().broadcast("exit code", &code, sizeof code, first);
  broadcast(message, first);
  // Ranks that have joined do not know of it, so the job cannot end in order.
  if (collectives_.joining() && collectives_.joinable().active() < size())
    throw Error(message, static_cast<ExitCode>(code));
  throw AgreedError(message, static_cast<ExitCode>(code), first);
}

int run_session(const std::string& program, int argc, const char* const* argv,
                const std::function<int(Session&)>& body) {
  set_up_log();
  try {
    Session session(argc, argv);
    const auto who = [&](int rank) {
      return session.size() > 1
                 ? fmt::format("rank {} on {}: ", rank, session.hosts()[static_cast<std::size_t>(rank)])
                 : "";
    };
    try {
      return body(session);
    } catch (const AgreedError& error) {
      if (session.rank() == error.first_rank)
        fmt::print(stderr, "{}: {}{}\n", program, error.first_rank > 0 ? who(error.first_rank) : "",
                   error.what());
      std::fflush(stderr);
      return static_cast<int>(error.exit_code());
    } catch (const std::exception& error) {
      const auto* own = dynamic_cast<const Error*>(&error);
      const auto code = own != nullptr ? own->exit_code() : ExitCode::failure;
      const std::string text = error.what();
      if (session.is_ending(code))
        fmt::print(stderr, "{}: {}{}\n", program, who(session.rank()),
                   text.substr(0, own != nullptr ? text.size() : text.find('\n')));
      std::fflush(stderr);
      if (session.size() > 1) MpiJob::abort(static_cast<int>(code));
      return static_cast<int>(code);
    }
  } catch (const Error& error) {  // no session: nobody to agree with
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace farandole
