#include "farandole/train/session.h"

#include <ATen/Context.h>
#include <algorithm>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <fmt/format.h>
#include <set>
#include <torch/utils.h>
#include <torch/version.h>
#include <unistd.h>

#include "farandole/base/bytes.h"
#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/log.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/signal_event.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/version.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/gpu/gpu_choice.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/job/mpi_job.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/recording/trace_requests.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/rank_status.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/recorder/recorder_cut.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/recorder/recorder_place.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/session_errors.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/step_marks.h"

namespace farandole {
namespace {

void share_cores(int local_size) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  torch::set_num_threads(std::max(1, has_own_cores() ? allowed_cores() : allowed_cores() / local_size));
}

// Returns nullptr and says why if this rank cannot use a GPU. LibTorch's CUDA library is loaded only when a
// program asks for a GPU. LibTorch looks for GPUs only once, so this must
// come before anything else of it that does so.
std::shared_ptr<const GpuRuntime> load_gpus(std::string& why_not) {
  auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) return nullptr;
  // LibTorch finds the kernels of CUDA through what this library registers. Nothing links it, so that
  // programs start where it or its dependencies are missing.
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    why_not = std::string("LibTorch has no CUDA here (") + ::dlerror() + "); install its build for CUDA";
    return nullptr;
  }
  if (!at::hasCUDA()) {
    why_not = "LibTorch finds no GPU";
    return nullptr;
  }
  return runtime;
}

// Makes a GPU the current one of this thread and of LibTorch.
GpuOfRank use_gpu(std::shared_ptr<const GpuRuntime> runtime, int device) {
  runtime->use(device);
  const torch::Device place(torch::kCUDA, static_cast<torch::DeviceIndex>(device));
  const c10::impl::VirtualGuardImpl cuda(torch::kCUDA);
  cuda.setDevice(place);
  return {std::move(runtime), device,
          [cuda, place] { return static_cast<CUstream_st*>(cuda.getStream(place).native_handle()); }};
}

}  // namespace

// In the order in which they need each other; the watchdog ends first.
struct Session::Internals::Parts {
  Parts()
      : timeline(std::make_unique<Timeline>()),
        trace_asked(SIGUSR2, SignalEvent::Afterwards::ignored),
        collectives(std::make_unique<TensorCollectives::Internals>()) {}

  TensorCollectives::Internals& ranks() { return collectives.internals(); }
  void refuse_while_joining();
  std::unique_ptr<TracedCommunicator> traced(std::unique_ptr<Communicator> communicator,
                                             std::uint16_t number);
  // Gives the session's collectives a new communicator.
  void reconnect();
  void record_stall_limit();
  void set_step(std::int64_t step);
  void publish();
  // What an earlier start has recorded in `run_dir` is kept (base/run/earlier_starts.h).
  // Collective: every rank of the job must call this in the same order.
  void keep_earlier_start_of(Session& session, const std::filesystem::path& run_dir);

  ErrorExit error_exit;
  MpiJob job;
  std::optional<RunLease> lease;
  std::unique_ptr<Timeline> timeline;
  CollectiveLaunches launches;
  std::unique_ptr<GpuActivity> gpu_activity;
  std::string no_gpu_activity = "nothing is recorded";
  StepMarks steps;
  std::unique_ptr<Recording> recording;
  std::filesystem::path recorded;  // The last run directory in which this session has recorded.
  RunProgress earlier_progress;
  SignalEvent trace_asked;
  std::unique_ptr<TraceRequests> trace_requests;
  CollectiveRegistry calls;
  TensorCollectives collectives;
  std::shared_ptr<CollectiveEntry> setups;  // of communicators of all ranks; null without a watchdog
  std::uint16_t communicators = 0;
  torch::Device device = torch::kCPU;
  std::unique_ptr<Watchdog> watchdog;  // Null in a job with one rank.
  double stall_seconds = 0;            // The watchdog reports a collective that lasts longer.
};

Session::Internals::Internals() : parts_(std::make_unique<Parts>()) {
  auto& parts = *parts_;
  const auto& layout = parts.job.layout();
  set_up_log(layout.rank, layout.size);
  share_cores(layout.local_size);
  keep_freed_memory();
  const auto stalls = WatchdogOptions::from_environment();
  if (layout.size > 1) {
    parts.watchdog = make_watchdog(layout, parts.calls);
    parts.setups = parts.calls.add(CollectiveRegistry::session_setup, layout.size);
  }
  watch_stalls(stalls);
  parts.reconnect();
}

Session::Internals::~Internals() = default;

Communicator& Session::Internals::communicator() {
  return communicator_of(parts_->collectives);
}

CollectiveRegistry& Session::Internals::calls() {
  return parts_->calls;
}

Waiting Session::Internals::waiting_for_gradients() const {
  return outnumber_cores(parts_->job.layout().machine_ranks) ? Waiting::yielding : Waiting::spin;
}

std::unique_ptr<TracedCommunicator> Session::Internals::Parts::traced(
    std::unique_ptr<Communicator> communicator, std::uint16_t number) {
  return std::make_unique<TracedCommunicator>(std::move(communicator), *timeline, number,
                                              watchdog != nullptr ? &calls : nullptr);
}

void Session::Internals::Parts::reconnect() {
  refuse_while_joining();
  const SetupCall setup(setups.get());
  ranks().use(traced(job.new_communicator(Waiting::yielding), communicators++));
}

void Session::Internals::Parts::refuse_while_joining() {
  if (ranks().joining())
    throw UserError("optimizers, groups and communicators cannot be made inside a Join; make them before it");
}

std::unique_ptr<TracedCommunicator> Session::Internals::new_communicator(Waiting waiting, Wire wire,
                                                                         Group* group) {
  auto& parts = *parts_;
  parts.refuse_while_joining();
  const SetupCall setup(group == nullptr ? parts.setups.get() : group->setups_.get());
  if (group == nullptr) return parts.traced(parts.job.new_communicator(waiting, wire), parts.communicators++);
  return parts.traced(parts.job.new_communicator(waiting, group->ranks(), wire), group->next_number());
}

DeviceCommunicatorOptions Session::Internals::device_options(Group* group) {
  DeviceCommunicatorOptions options;
  options.number = group == nullptr ? parts_->communicators++ : group->next_number();
  if (parts_->watchdog != nullptr) options.registry = &parts_->calls;
  options.launches = &parts_->launches;
  if (group != nullptr) options.world_ranks = group->ranks();
  return options;
}

void Session::Internals::watch_stalls(const WatchdogOptions& options) {
  parts_->stall_seconds = options.report_seconds();
  parts_->record_stall_limit();
  if (parts_->watchdog != nullptr) parts_->watchdog->set_options(options);
}

void Session::Internals::Parts::record_stall_limit() {
  if (watchdog != nullptr)
    timeline->set_metadata(recorder::stall_seconds_fact, fmt::format("{}", stall_seconds));
}

std::string Session::Internals::gpu_to_watch() const {
  const auto& layout = parts_->job.layout();
  return gpus.empty() ? gpu_of_rank(layout.local_rank, std::getenv("CUDA_VISIBLE_DEVICES"))
                      : gpus[static_cast<std::size_t>(layout.rank)];
}

bool Session::Internals::is_ending(ExitCode code) {
  auto* const watchdog = parts_->watchdog.get();
  if (watchdog == nullptr) return true;
  const bool is_new_loss = code == ExitCode::peer_lost && watchdog->claim_loss();
  const bool is_first = watchdog->leave(code != ExitCode::peer_lost);
  return is_new_loss || is_first;
}

DistributedOptimizer* Session::Internals::optimizer_of(const torch::optim::Optimizer& inner) const {
  const auto found = std::find_if(optimizers.begin(), optimizers.end(),
                                  [&](auto* optimizer) { return &optimizer->inner() == &inner; });
  return found == optimizers.end() ? nullptr : *found;
}

bool Session::Internals::holds_lease() const {
  return parts_->lease->held();
}

const std::filesystem::path& Session::Internals::recorded() const {
  return parts_->recorded;
}

bool Session::Internals::joining() const {
  return parts_->ranks().joining();
}

const RunProgress& Session::Internals::earlier_progress() const {
  return parts_->earlier_progress;
}

Group::Group(std::vector<int> ranks, std::uint16_t number, std::shared_ptr<CollectiveEntry> setups,
             std::unique_ptr<Internals> internals)
    : TensorCollectives(std::move(internals)),
      ranks_(std::move(ranks)),
      first_number_(number),
      setups_(std::move(setups)) {}

Session::Session(int, const char* const*) : Session(RecordFrom::start) {}

Session::Session(RecordFrom from)
    : internals_(std::make_unique<Internals>()), exceptions_at_start_(std::uncaught_exceptions()) {
  internals_->parts_->error_exit.attend(this);
  const auto folder = from == RecordFrom::start ? run_dir_of_environment() : std::filesystem::path();
  if (!folder.empty()) start_recording({.run_dir = folder});
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    end_job(*this, "farandole",
            {"the job ends because an exception leaves the session's scope; catch the exception inside the "
             "scope, or nowhere, to see it"});
  }
  if (internals_->parts_->watchdog != nullptr) internals_->parts_->watchdog->come_to_end();
  try {
    internals_->parts_->publish();
  } catch (const std::exception& error) {
    // If rank 0 could not write, the other ranks still wait until it has read their records.
    end_job(*this, "farandole", {fmt::format("the timeline could not be written: {}", error.what())});
  }
  internals_->parts_->error_exit.attend(nullptr);
}

int Session::rank() const {
  return internals_->parts_->job.layout().rank;
}
int Session::size() const {
  return internals_->parts_->job.layout().size;
}
int Session::local_rank() const {
  return internals_->parts_->job.layout().local_rank;
}
int Session::local_size() const {
  return internals_->parts_->job.layout().local_size;
}
int Session::node_cores() const {
  return internals_->parts_->job.layout().node_cores;
}
const std::string& Session::node() const {
  return internals_->parts_->job.layout().node;
}
const std::vector<std::string>& Session::hosts() const {
  return internals_->parts_->job.layout().hosts;
}
void Session::use_transport(std::string_view wish) {
  const auto transport = parse_transport(wish, "the transport");
  auto& parts = *internals_->parts_;
  if (transport == parts.job.transport()) return;
  parts.job.use_transport(transport);
  parts.reconnect();
}

std::optional<std::string> Session::between_nodes() const {
  return internals_->parts_->job.between_nodes();
}
torch::Device Session::device() const {
  return internals_->parts_->device;
}

void Session::use_device(std::string_view wish, int ranks_per_gpu) {
  if (wish != "cpu" && wish != "cuda" && wish != "auto")
    throw UserError(
        fmt::format("the device cannot be '{}'; use cpu, cuda (one GPU for each rank) or auto (GPUs if every "
                    "rank can have one)",
                    wish));
  if (wish == "cpu") return;
  std::string why_not;
  auto runtime = load_gpus(why_not);
  struct Gpus {
    std::int32_t count = 0;
    char first[48] = {};
    char topology[192] = {};
  };
  Gpus own;
  if (runtime != nullptr) {
    own.count = runtime->device_count();
    store_text(own.first, runtime->describe(0).uuid);
  }
  auto& mine = *internals_;
  std::vector<Gpus> all(static_cast<std::size_t>(size()));
  const std::vector<std::size_t> bytes(all.size(), sizeof own);
  mine.communicator().all_gather("GPUs", &own, all.data(), bytes);
  if (std::any_of(all.begin(), all.end(), [](const Gpus& gpus) { return gpus.count == 0; })) {
    together([&] {
      if (wish == "cuda" && runtime == nullptr)
        throw UserError(fmt::format("--device cuda cannot be used: {}; use --device cpu", why_not));
    });
    return;
  }
  const auto& layout = mine.parts_->job.layout();
  const auto node_of = [&](std::size_t r) { return layout.nodes[r]; };
  std::vector<VisibleGpus> here;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (node_of(r) == node_of(static_cast<std::size_t>(rank()))) here.push_back({all[r].count, all[r].first});
  Gpus chosen;
  int device = 0;
  try {
    together([&] { device = choose_gpu(here, local_rank(), node(), ranks_per_gpu); });
  } catch (const Error&) {
    if (wish == "auto") return;
    throw;
  }
  together([&] {
    mine.gpu = use_gpu(runtime, device);
    store_text(chosen.first, runtime->describe(device).uuid);
    store_text(chosen.topology, runtime->topology(device));
  });
  mine.communicator().all_gather("chosen GPUs", &chosen, all.data(), bytes);
  mine.gpus.clear();
  mine.gpu_topology.clear();
  for (const auto& gpu : all) {
    mine.gpus.emplace_back(gpu.first);
    mine.gpu_topology.emplace_back(gpu.topology);
  }
  mine.gpu->shared = std::set(mine.gpus.begin(), mine.gpus.end()).size() < mine.gpus.size();
  mine.parts_->device = torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(mine.gpu->device));
}

TensorCollectives& Session::collectives() {
  return internals_->parts_->collectives;
}
Timeline& Session::timeline() {
  return *internals_->parts_->timeline;
}
const std::string& Session::no_gpu_activity() const {
  return internals_->parts_->no_gpu_activity;
}

std::unique_ptr<Group> Session::new_group(std::span<const int> ranks) {
  auto& parts = *internals_->parts_;
  parts.refuse_while_joining();
  check_group_agreement(internals_->communicator(), ranks);
  const auto number = parts.communicators;
  parts.communicators = static_cast<std::uint16_t>(parts.communicators + Group::numbers);
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) return nullptr;
  std::shared_ptr<CollectiveEntry> setups;
  if (parts.watchdog != nullptr)
    setups = parts.calls.add(Group::setup_number(number), static_cast<int>(ranks.size()));
  auto communicator = parts.traced(parts.job.new_communicator(Waiting::yielding, ranks), number);
  return std::unique_ptr<Group>(
      new Group({ranks.begin(), ranks.end()}, number, std::move(setups),
                std::make_unique<TensorCollectives::Internals>(std::move(communicator))));
}

void Session::Internals::take_lease(const std::filesystem::path& run_dir) {
  auto& lease = parts_->lease;
  if (parts_->job.layout().rank != 0 || run_dir.empty()) return;
  const auto folder = std::filesystem::absolute(run_dir);
  if (lease && lease->run_dir() == folder) return;
  lease.reset();
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw UserError(fmt::format("run directory {} cannot be created: {}; choose another one", folder.string(),
                                failure.message()));
  lease.emplace(folder, [this](const std::string& message) {
    fmt::print(stderr, "farandole: {}\n", message);
    std::fflush(stderr);
    is_ending(ExitCode::failure);
    abort_job(static_cast<int>(ExitCode::failure));
  });
}

// Every node first copies the earlier start's recorders that are on its own disk. Rank 0 then moves
// all of them.
void Session::Internals::Parts::keep_earlier_start_of(Session& session,
                                                      const std::filesystem::path& run_dir) {
  if (run_dir.empty()) return;
  const auto folder = std::filesystem::absolute(run_dir);
  if (std::exchange(recorded, folder) == folder) return;
  session.together([&] {
    if (session.local_rank() == 0) stage_out_all(folder / "recorder", ".ftl");
    cut_recorders(folder, session.rank(), session.size());
  });
  session.together([&] {
    if (session.rank() != 0) return;
    earlier_progress = read_run_progress(folder);
    keep_earlier_start(folder);
  });
}

void Session::start_recording(const RecordingOptions& options) {
  auto& parts = *internals_->parts_;
  parts.ranks().use(nullptr);
  parts.gpu_activity.reset();
  parts.trace_requests.reset();
  parts.recording.reset();
  parts.timeline = std::make_unique<Timeline>();
  parts.steps = {};
  parts.communicators = 0;
  parts.reconnect();
  together([&] { internals_->take_lease(options.run_dir); });
  parts.keep_earlier_start_of(*this, options.run_dir);
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
  parts.timeline = std::move(timeline);
  parts.timeline->name_thread("training");
  parts.timeline->set_metadata("farandole", version());
  parts.timeline->set_metadata("libtorch", TORCH_VERSION);
  parts.timeline->set_metadata("mpi", MpiJob::library_version());
  parts.record_stall_limit();
  parts.gpu_activity =
      GpuActivity::start(*parts.timeline, options.gpu_activity, parts.launches, parts.no_gpu_activity);
  parts.recording = std::make_unique<Recording>(
      parts.job.new_channel(), *parts.timeline,
      TraceOptions{
          .run_dir = options.run_dir, .merge_limit = options.merge_limit, .gpu = internals_->gpu_to_watch()});
  parts.trace_requests =
      std::make_unique<TraceRequests>(parts.job.layout(), parts.trace_asked, *parts.timeline,
                                      TraceRequestOptions{options.run_dir, options.merge_limit});
  parts.communicators = 0;
  parts.reconnect();
}

void Session::Internals::Parts::set_step(std::int64_t step) {
  timeline->set_step(step);
  if (gpu_activity != nullptr) gpu_activity->mark_step(step);
}

void Session::set_step(std::int64_t step) {
  auto& parts = *internals_->parts_;
  parts.steps.program_numbers_steps();
  parts.set_step(step);
}

void Session::Internals::optimizer_begins_step(const void* optimizer) {
  if (const auto step = parts_->steps.begin(*parts_->timeline, optimizer)) parts_->set_step(*step);
}
void Session::Internals::optimizer_ended_step(const void* optimizer) {
  if (const auto step = parts_->steps.end(*parts_->timeline, optimizer)) parts_->set_step(*step);
}
void Session::Internals::program_marks_steps() {
  parts_->steps.program_numbers_steps();
  parts_->steps.program_marks_steps();
}
void Session::Internals::optimizer_is_gone(const void* optimizer) {
  parts_->steps.forget(optimizer);
}

void Session::publish_timeline() {
  auto& parts = *internals_->parts_;
  if (parts.recording == nullptr) return parts.gpu_activity.reset();
  if (parts.watchdog != nullptr) parts.watchdog->come_to_end();
  parts.publish();
  if (parts.watchdog != nullptr) parts.watchdog->leave_end();
}

void Session::Internals::Parts::publish() {
  gpu_activity.reset();
  if (recording == nullptr) return;
  trace_requests.reset();
  std::exchange(recording, nullptr)->publish();
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
  auto& parts = *internals_->parts_;
  internals_->communicator().allreduce("agreement", &first, 1, DType::int32, ReduceOp::min);
  if (first == size()) return;
  internals_->communicator().broadcast("exit code", &code, sizeof code, first);
  broadcast(message, first);
  // Ranks that have joined do not know about the error, so the job cannot end normally.
  if (parts.ranks().joining() && parts.ranks().communicator->active() < size())
    throw Error(message, static_cast<ExitCode>(code));
  throw AgreedError(message, static_cast<ExitCode>(code), first);
}

int run_session(const std::string& program, int, const char* const*, const std::function<int(Session&)>& body,
                RecordFrom from) {
  set_up_log();
  try {
    Session session(from);
    try {
      return body(session);
    } catch (const std::exception&) {
      const auto error = describe_error(std::current_exception(), &session);
      if (error.first_rank < 0) end_job(session, program, error);
      say_agreed_error(session, program, error);
      return static_cast<int>(error.code);
    }
  } catch (const Error& error) {  // There is no session with which the ranks could agree.
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace farandole
