#include "farandole/job/job.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/signal_event.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/version.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/control/control_communicator.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/recording/trace_requests.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/job/job_errors.h"
#include "farandole/job/step_marks.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/recorder/recorder_cut.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/recorder/recorder_place.h"

namespace farandole {

// In the order in which they need each other; the watchdog ends first.
struct Job::Parts {
  RankLayout guest;
  std::unique_ptr<ControlPlane> control;  // of a guest that meets others
  std::string invitation;                 // that it has given
  std::thread meeting;
  std::optional<WatchPost> post;  // is there when `met` is true
  std::atomic<bool> met{false};
  std::optional<ErrorExit> error_exit;  // These two are not in a guest.
  std::optional<World> world;
  std::optional<RunLease> lease;
  std::unique_ptr<Timeline> timeline = std::make_unique<Timeline>();
  CollectiveLaunches launches;
  std::unique_ptr<GpuActivity> gpu_activity;
  std::string no_gpu_activity = "nothing is recorded";
  StepMarks steps;
  std::unique_ptr<Recording> recording;
  std::filesystem::path recorded;
  RunProgress earlier_progress;
  std::optional<SignalEvent> trace_asked;
  std::unique_ptr<TraceRequests> trace_requests;
  CollectiveRegistry calls;
  std::unique_ptr<ControlCommunicator>
      agreement;                      // of together(); null in a guest and in a job with one rank
  std::unique_ptr<AlertChannel> end;  // of the destructor; null if it waits for nobody
  std::unique_ptr<JoinCommunicator> communicator;  // null in a guest
  std::shared_ptr<CollectiveEntry> setups;         // of communicators of all ranks; null without a watchdog
  std::unique_ptr<Watchdog> watchdog;              // Null in a job with one rank.
  double stall_seconds = 0;                        // The watchdog reports a collective that lasts longer.
};

Job::Job(std::optional<std::chrono::nanoseconds> limit) : parts_(std::make_unique<Parts>()) {
  auto& parts = *parts_;
  parts.error_exit.emplace();
  parts.world.emplace(limit);
  parts.trace_asked.emplace(SIGUSR2, SignalEvent::Afterwards::ignored);
  set_up_log(layout().rank, layout().size);
  const auto stalls = WatchdogOptions::from_environment();
  if (layout().size > 1) {
    parts.agreement = std::make_unique<ControlCommunicator>(world().control(), all_ranks(layout().size));
    parts.end = std::make_unique<AlertChannel>(world().control(), all_ranks(layout().size));
    parts.watchdog =
        make_watchdog(world().control(), layout(), parts.calls, [this](int code) { abort(code); });
    parts.setups = parts.calls.add(CollectiveRegistry::session_setup, layout().size);
  }
  watch_stalls(stalls);
}

Job::Job(const GuestRank& rank) : parts_(std::make_unique<Parts>()) {
  set_up_log(rank.rank, rank.size);
  auto& layout = parts_->guest;
  layout.rank = rank.rank;
  layout.size = rank.size;
  layout.local_rank = rank.local_rank;
  layout.local_size = layout.machine_ranks = rank.local_size;
  layout.node = host_name();
  layout.node_cores = allowed_cores();
}

// Ranks wait for each other at the end, so that a rank that others wait for can say where it is.
Job::~Job() {
  auto& parts = *parts_;
  if (parts.meeting.joinable()) leave_others();
  if (parts.end == nullptr) return;
  parts.watchdog->come_to_end();
  std::map<int, std::vector<int>> ranks_of_node;
  for (int rank = 0; rank < layout().size; ++rank)
    ranks_of_node[layout().nodes[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<std::vector<int>> groups;
  for (auto& [node, ranks] : ranks_of_node) groups.push_back(std::move(ranks));
  const auto own = layout().nodes[static_cast<std::size_t>(layout().rank)];
  parts.end->await_all(groups, static_cast<std::size_t>(own), [] { return false; });
}

const RankLayout& Job::layout() const {
  return is_guest() ? parts_->guest : parts_->world->layout();
}
bool Job::is_guest() const {
  return !parts_->world;
}
World& Job::world() {
  if (!is_guest()) return *parts_->world;
  throw UserError(
      "Farandole only records this program, so its ranks cannot communicate through it; start it with farandole run");
}
// It is made when it is needed first, which is at the same place of all ranks' work: a program that is only
// recorded needs none.
JoinCommunicator& Job::communicator() {
  if (parts_->communicator == nullptr) {
    world();
    reconnect();
  }
  return *parts_->communicator;
}
bool Job::joining() const {
  return parts_->communicator != nullptr && parts_->communicator->joining();
}

std::unique_ptr<TracedCommunicator> Job::traced(std::unique_ptr<Communicator> communicator,
                                                std::uint16_t number) {
  return std::make_unique<TracedCommunicator>(std::move(communicator), timeline(), number, watched_calls());
}

void Job::refuse_while_joining() {
  if (joining())
    throw UserError("optimizers, groups and communicators cannot be made inside a Join; make them before it");
}

void Job::reconnect() {
  auto& parts = *parts_;
  if (is_guest()) return;
  refuse_while_joining();
  const SetupCall setup(parts.setups.get());
  auto fresh = std::make_unique<JoinCommunicator>(
      traced(world().new_communicator(Waiting::yielding), communicators_++));
  if (communicator_changes) communicator_changes(nullptr);
  parts.communicator = std::move(fresh);
  if (communicator_changes) communicator_changes(parts.communicator.get());
}

void Job::use_transport(Transport transport) {
  if (transport == world().transport()) return;
  world().use_transport(transport);
  reconnect();
}

std::unique_ptr<TracedCommunicator> Job::new_communicator(Waiting waiting, Wire wire, RankGroup* group) {
  refuse_while_joining();
  const SetupCall setup(group == nullptr ? parts_->setups.get() : group->setups());
  if (group == nullptr) return traced(world().new_communicator(waiting, wire), communicators_++);
  return traced(world().new_communicator(waiting, group->ranks(), wire), group->next_number());
}

Job::NewGroup Job::new_group(std::span<const int> ranks) {
  refuse_while_joining();
  check_group_agreement(communicator(), ranks);
  const auto number = communicators_;
  communicators_ = static_cast<std::uint16_t>(communicators_ + RankGroup::numbers);
  if (std::find(ranks.begin(), ranks.end(), layout().rank) == ranks.end()) return {};
  std::shared_ptr<CollectiveEntry> setups;
  if (parts_->watchdog != nullptr)
    setups = calls().add(RankGroup::setup_number(number), static_cast<int>(ranks.size()));
  return {
      std::make_unique<RankGroup>(std::vector<int>(ranks.begin(), ranks.end()), number, std::move(setups)),
      traced(world().new_communicator(Waiting::yielding, ranks), number)};
}

std::unique_ptr<TracedCommunicator> Job::new_communicator_of(std::span<const int> ranks) {
  refuse_while_joining();
  auto communicator = world().new_communicator(Waiting::yielding, ranks);
  return traced(std::move(communicator), number_of(ranks));
}

// A number that is equal on these ranks; no others have it. The first rank of the list counts its lists. Its
// own number keeps those of different ranks apart, and the base those of the whole job.
std::uint16_t Job::number_of(std::span<const int> ranks) {
  constexpr int base = 0x4000, last = CollectiveRegistry::first_observed;
  const int own = base + (groups_ * layout().size + layout().rank) % (last - base);
  if (!ranks.empty() && ranks.front() == layout().rank) ++groups_;
  return static_cast<std::uint16_t>(world().value_of_first(ranks, own));
}

Waiting Job::waiting_for_gradients() const {
  return outnumber_cores(layout().machine_ranks) ? Waiting::yielding : Waiting::spin;
}

CollectiveRegistry& Job::calls() {
  return parts_->calls;
}
CollectiveRegistry* Job::watched_calls() {
  return parts_->watchdog == nullptr && !is_guest() ? nullptr : &parts_->calls;
}

void Job::watch_stalls(const WatchdogOptions& options) {
  parts_->stall_seconds = options.report_seconds();
  record_stall_limit();
  if (parts_->watchdog != nullptr) parts_->watchdog->set_options(options);
}

void Job::record_stall_limit() {
  if (parts_->watchdog != nullptr)
    timeline().set_metadata(recorder::stall_seconds_fact, fmt::format("{}", parts_->stall_seconds));
}

bool Job::is_ending(ExitCode code) {
  auto* const watchdog = parts_->watchdog.get();
  if (watchdog == nullptr) return true;
  const bool is_new_loss = code == ExitCode::peer_lost && watchdog->claim_loss();
  const bool is_first = watchdog->leave(code != ExitCode::peer_lost);
  return is_new_loss || is_first;
}

std::string Job::invite() {
  if (layout().size == 1 || parts_->control != nullptr) return parts_->invitation;
  const auto told = std::make_shared<std::promise<std::string>>();
  MeetingPlace place;
  place.publish = [told](const std::string& text) { told->set_value(text); };
  meet(std::move(place));
  return parts_->invitation = told->get_future().get();
}

void Job::meet(const std::string& invitation) {
  MeetingPlace place;
  place.look = [invitation] { return std::optional(invitation); };
  meet(std::move(place));
}

void Job::meet(MeetingPlace place) {
  auto& parts = *parts_;
  const auto& own = layout();
  if (!is_guest() || own.size == 1 || parts.control != nullptr) return;
  ControlPlane::Start start{own.rank, own.size, own.local_size < own.size, std::move(place)};
  start.obeys = false;
  parts.control = std::make_unique<ControlPlane>(std::move(start));
  parts.control->patience = std::chrono::milliseconds(100);
  parts.meeting = start_quiet_thread([&parts] {
    constexpr std::chrono::seconds limit(60);
    auto& control = *parts.control;
    try {
      control.join(limit);
      if (parts.recording != nullptr) parts.recording->use(control);
      const auto layout = layout_of(control);
      std::vector<int> present;
      for (int rank = 0; rank < layout.size; ++rank)
        if (!layout.hosts[static_cast<std::size_t>(rank)].empty()) present.push_back(rank);
      if (const auto missing = static_cast<std::size_t>(layout.size) - present.size();
          missing > 0 && layout.rank == 0)
        log_warning("{} of {} ranks have no recorder, or cannot reach rank 0; they are not watched", missing,
                    layout.size);
      parts.post = make_watch_post(control, std::move(present), layout.nodes);
      parts.met = true;
    } catch (const Error& error) {
      if (!control.stopped()) log_warning("this rank is recorded, but not watched: {}", error.what());
    }
  });
}

void Job::watch_if_met() {
  auto& parts = *parts_;
  if (!parts.met || parts.watchdog != nullptr || ::gettid() != ::getpid()) return;
  auto layout = parts.guest;
  layout.hosts.clear();
  for (const auto& facts : parts.control->ranks()) layout.hosts.push_back(facts.host);
  parts.watchdog = std::make_unique<Watchdog>(std::move(*parts.post), layout, parts.calls, nullptr);
  parts.watchdog->end_alone();
  watch_stalls(WatchdogOptions::from_environment());
}

// Nobody waits for this rank, nor does it wait for others.
void Job::leave_others() {
  parts_->control->stop();
  parts_->meeting.join();
}

void Job::abort(int exit_code) {
  abort_job(layout().size > 1 ? &world().control() : nullptr, exit_code);
}

void Job::end_alone() {
  parts_->end = nullptr;
  if (parts_->watchdog != nullptr) parts_->watchdog->end_alone();
}

void Job::come_to_end() {
  if (parts_->watchdog != nullptr) parts_->watchdog->come_to_end();
}

bool Job::holds_lease() const {
  return parts_->lease->held();
}

void Job::take_lease(const std::filesystem::path& run_dir) {
  auto& lease = parts_->lease;
  if (layout().rank != 0 || run_dir.empty()) return;
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
    if (is_guest()) return;
    is_ending(ExitCode::failure);
    abort(static_cast<int>(ExitCode::failure));
  });
}

void Job::together(const std::function<void()>& work) {
  if (is_guest()) return work();
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
  const int size = layout().size;
  int first = code != 0 ? layout().rank : size;
  // Ranks that have joined take part only in what goes through the communicator.
  Communicator* const ranks =
      joining() ? static_cast<Communicator*>(&communicator()) : parts_->agreement.get();
  if (ranks != nullptr) ranks->allreduce("agreement", &first, 1, DType::int32, ReduceOp::min);
  if (first == size) return;
  if (ranks != nullptr) {
    ranks->broadcast("exit code", &code, sizeof code, first);
    broadcast_text(*ranks, message, first);
  }
  // Ranks that have joined do not know about the error, so the job cannot end normally.
  if (joining() && communicator().active() < size) throw Error(message, static_cast<ExitCode>(code));
  throw AgreedError(message, static_cast<ExitCode>(code), first);
}

// Every node first copies the earlier start's recorders that are on its own disk. Rank 0 then moves
// all of them. In a guest, rank 0 does it alone.
void Job::keep_earlier_start_of(const std::filesystem::path& run_dir) {
  if (run_dir.empty()) return;
  const auto folder = std::filesystem::absolute(run_dir);
  if (std::exchange(parts_->recorded, folder) == folder) return;
  if (is_guest() && layout().rank != 0) return;
  together([&] {
    if (layout().local_rank == 0) stage_out_all(folder / "recorder", ".ftl");
    cut_recorders(folder, layout().rank, is_guest() ? 1 : layout().size);
  });
  together([&] {
    if (layout().rank != 0) return;
    parts_->earlier_progress = read_run_progress(folder);
    keep_earlier_start(folder);
  });
}

void Job::start_recording(const RecordingOptions& options, const std::string& gpu) {
  auto& parts = *parts_;
  const bool had_communicator = parts.communicator != nullptr;
  if (communicator_changes) communicator_changes(nullptr);
  parts.communicator.reset();
  parts.trace_requests.reset();
  parts.gpu_activity.reset();
  parts.recording.reset();
  parts.timeline = std::make_unique<Timeline>();
  parts.steps = {};
  communicators_ = 0;
  together([&] { take_lease(options.run_dir); });
  keep_earlier_start_of(options.run_dir);
  if (options.window.off()) {
    tell_run_dir(options.run_dir);
    if (had_communicator) reconnect();
    return;
  }
  const auto wish =
      options.recorder_dir ? RecorderWish{*options.recorder_dir, "--recorder-dir"} : wished_place();
  const auto ranks_here = static_cast<std::size_t>(layout().local_size);
  RecorderPlace place;
  together([&] { place = place_recorder(options.run_dir, wish, options.recorder_bytes * ranks_here); });
  tell_run_dir(options.run_dir);
  std::unique_ptr<Timeline> timeline;
  together([&] {
    timeline = std::make_unique<Timeline>(
        TimelineOptions{recorder_file(options.run_dir, layout().rank), options.window, options.recorder_bytes,
                        layout().rank, layout().size, layout().node, place.folder, place.chosen});
  });
  parts.timeline = std::move(timeline);
  parts.timeline->set_metadata("farandole", version());
  if (!is_guest()) {
    parts.timeline->name_thread("training");
    parts.timeline->set_metadata("mpi", World::library_version());
  }
  record_stall_limit();
  parts.gpu_activity =
      GpuActivity::start(*parts.timeline, options.gpu_activity, parts.launches, parts.no_gpu_activity);
  parts.recording = std::make_unique<Recording>(
      layout().size > 1 && !is_guest() ? world().new_channel() : nullptr, *parts.timeline,
      TraceOptions{.run_dir = options.run_dir,
                   .merge_limit = options.merge_limit,
                   .gpu = gpu,
                   .of_main_thread = is_guest()});
  if (is_guest()) return;
  parts.trace_requests = std::make_unique<TraceRequests>(
      world().control(), layout(), *parts.trace_asked, *parts.timeline,
      TraceRequestOptions{options.run_dir, options.merge_limit, [gpu = parts.gpu_activity.get()] {
                            if (gpu != nullptr) gpu->record_next_steps();
                          }});
  if (had_communicator) reconnect();
}

Timeline& Job::timeline() {
  return *parts_->timeline;
}
const std::string& Job::no_gpu_activity() const {
  return parts_->no_gpu_activity;
}
CollectiveLaunches& Job::launches() {
  return parts_->launches;
}
const std::filesystem::path& Job::recorded() const {
  return parts_->recorded;
}
const RunProgress& Job::earlier_progress() const {
  return parts_->earlier_progress;
}

void Job::set_step(std::int64_t step) {
  timeline().set_step(step);
  if (parts_->gpu_activity != nullptr) parts_->gpu_activity->mark_step(step);
}
void Job::program_sets_step(std::int64_t step) {
  parts_->steps.program_numbers_steps();
  set_step(step);
}
void Job::first_step_begins() {
  if (is_guest()) timeline().name_thread("training");
  parts_->steps.begin_first(now_ns(), [this](std::int64_t step) { set_step(step); });
}
int Job::optimizer_ended_step(const void* optimizer, std::int64_t end_ns) {
  return parts_->steps.end(timeline(), optimizer, end_ns, [this](std::int64_t step) { set_step(step); });
}
void Job::optimizer_is_gone(const void* optimizer) {
  parts_->steps.forget(optimizer);
}
void Job::program_marks_steps() {
  parts_->steps.program_numbers_steps();
  parts_->steps.program_marks_steps();
}

void Job::close_recording() {
  if (parts_->meeting.joinable()) leave_others();
  parts_->trace_requests.reset();
  parts_->gpu_activity.reset();
  parts_->recording.reset();
}

void Job::publish() {
  auto& parts = *parts_;
  parts.trace_requests.reset();
  parts.gpu_activity.reset();
  if (parts.recording == nullptr) return;
  std::exchange(parts.recording, nullptr)->publish();
}

void Job::publish_timeline() {
  auto& parts = *parts_;
  if (parts.recording == nullptr) return parts.gpu_activity.reset();
  come_to_end();
  publish();
  if (parts.watchdog != nullptr) parts.watchdog->leave_end();
}

void Job::attend_errors(bool attend) {
  if (parts_->error_exit) parts_->error_exit->attend(attend ? this : nullptr);
}

}  // namespace farandole
