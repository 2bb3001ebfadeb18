// What a process of a job has without tensors: its rank, communicators, the recording, the lease of the run
// directory and the watchdog. A session is a job with tensors, the C interface one without. There is one
// object per process.
// Thread safety: call from the training thread only. Functions say where other threads may call them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/join_communicator.h"
#include "farandole/job/recording_options.h"
#include "farandole/timeline/recorder/run_progress.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class CollectiveLaunches;

// An error that all ranks know (Job::together), so that the job can end normally.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode code, int rank) : Error(message, code), first_rank(rank) {}
  const int first_rank;
};

// Communicators of the same ranks; each purpose has its own. Their numbers in the timeline and in the
// registry of collectives follow each other.
class RankGroup {
 public:
  static constexpr std::uint16_t numbers = 8;

  // The last number is that of the setups of the group's communicators.
  static std::uint16_t setup_number(std::uint16_t first) {
    return static_cast<std::uint16_t>(first + numbers - 1);
  }
  // `setups` may be null.
  RankGroup(std::vector<int> ranks, std::uint16_t first_number, std::shared_ptr<CollectiveEntry> setups)
      : ranks_(std::move(ranks)), first_number_(first_number), setups_(std::move(setups)) {}
  const std::vector<int>& ranks() const { return ranks_; }
  CollectiveEntry* setups() const { return setups_.get(); }
  // Returns the number of the group's next communicator. Numbers repeat after several optimizers; the first
  // optimizers may no longer exist then.
  std::uint16_t next_number() {
    return static_cast<std::uint16_t>(first_number_ + 1 + made_++ % (numbers - 2));
  }

 private:
  const std::vector<int> ranks_;
  const std::uint16_t first_number_;
  const std::shared_ptr<CollectiveEntry> setups_;
  std::uint16_t made_ = 0;
};

// A rank of a program that Farandole has not started and only records, as its own library knows it.
struct GuestRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
};

class Job {
 public:
  // Meets the other ranks, and starts the watchdogs for stalls and lost ranks.
  // With `limit`, it does not wait longer for them.
  // Throws: as Session::Session(); Error if a rank does not come within the limit.
  explicit Job(std::optional<std::chrono::nanoseconds> limit = std::nullopt);
  // A guest: it starts nothing but its recording, knows no other rank, and never ends the program. Functions
  // that need other ranks throw a UserError.
  explicit Job(const GuestRank& rank);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const RankLayout& layout() const;  // of a guest, only what GuestRank says, its host and its cores
  bool is_guest() const;
  World& world();
  // Over all ranks. It is another object after start_recording() and use_transport().
  // Collective: the first call of all ranks, also after these.
  JoinCommunicator& communicator();
  bool joining() const;  // inside a Join
  // Gets nullptr before the communicator over all ranks is destroyed, and then the new one.
  std::function<void(JoinCommunicator*)> communicator_changes;
  // Collective: every rank of the job must call this in the same order.
  void use_transport(Transport transport);

  // Creates another communicator over all ranks, or over `group`, for a separate thread. It must not
  // outlive the job.
  // Throws: UserError inside a Join, because ranks that have joined would not take part.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Wire wire,
                                                       RankGroup* group = nullptr);
  // Creates a group of the ranks in `ranks`, and its first communicator. On ranks that are not in the list,
  // both are null.
  // Throws: UserError on all ranks if the lists differ or have wrong ranks; and as above.
  // Collective: every rank of the job must call this in the same order.
  struct NewGroup {
    std::unique_ptr<RankGroup> group;
    std::unique_ptr<TracedCommunicator> communicator;
  };
  NewGroup new_group(std::span<const int> ranks);
  // As above, but called by the ranks of the list only, which the list cannot be compared with others for.
  std::unique_ptr<TracedCommunicator> new_communicator_of(std::span<const int> ranks);
  // A number for a communicator over all ranks that is made elsewhere.
  // Collective: every rank of the job must call this in the same order.
  std::uint16_t new_number() { return communicators_++; }
  // Returns how a thread that reduces gradients beside the training thread should wait. On 2 cores, steps of
  // 2 ranks (gpt) were 7 to 10 % shorter when the thread spun inside MPI, although it uses a core. Steps of 4
  // ranks took the same time; there, yielding disturbs other processes less.
  Waiting waiting_for_gradients() const;

  // The collectives that this rank is in.
  CollectiveRegistry& calls();
  // nullptr in a job with one rank.
  CollectiveRegistry* watched_calls();
  // Sets when a collective counts as stalled. This replaces the limits of the environment.
  void watch_stalls(const WatchdogOptions& options);
  // Tells the watchdog that the caller knows why the job ends, so that the other ranks need not find out.
  // Returns false if the error is known: the watchdog of this rank has already reported the lost peer, or,
  // for other errors, another rank of this node has called this before.
  bool is_ending(ExitCode code);
  // A guest meets the other ranks with the invitation that rank 0 gives. It is then watched as the others
  // are, and its clock is compared with theirs. Neither function waits for them.
  // Throws: Error if no socket or thread can be made.
  std::string invite();
  void meet(const std::string& invitation);
  // Call this now and then on the main thread of a guest.
  void watch_if_met();
  // Ends all ranks at once.
  [[noreturn]] void abort(int exit_code);
  // The end of this object does not wait for ranks that work on.
  void end_alone();
  // This rank waits for the others at the end of the job.
  void come_to_end();

  // Makes this job the only one that writes into `run_dir` (base/run/run_lease.h), until the job ends or has
  // another run directory. If another job takes over, because this one was stopped for long, this job ends,
  // and a guest says so.
  // Throws: as RunLease. Called on rank 0; does nothing on others.
  void take_lease(const std::filesystem::path& run_dir);
  // As RunLease::held(), on rank 0 after take_lease().
  // Thread safety: any thread may call this at any time.
  bool holds_lease() const;

  // Runs `work`, which must not contain collectives, on every rank. In a guest, that is all.
  // Throws: if `work` throws on some ranks, every rank throws the error of the lowest of them.
  // Collective: every rank of the job must call this in the same order.
  void together(const std::function<void()>& work);

  // As Session::start_recording(). `gpu` is the GPU whose counters are recorded, as for GpuCounters::open().
  // Collective: every rank of the job must call this in the same order. A guest may call it once, on any
  // thread; rank 0 moves what an earlier start has left, so it must be the first.
  void start_recording(const RecordingOptions& options, const std::string& gpu);
  Timeline& timeline();
  void set_step(std::int64_t step);            // in the timeline and in the GPU's activity
  void program_sets_step(std::int64_t step);   // as above, and steps are not counted any more
  const std::string& no_gpu_activity() const;  // why none is recorded; "" if it is
  CollectiveLaunches& launches();
  // Ends the recording on this rank. Its records stay in its file, from which `farandole run` merges.
  void close_recording();
  // As Session::publish_timeline().
  // Collective: every rank of the job must call this in the same order.
  void publish_timeline();
  // As above, at the end of the job.
  void publish();

  // The last run directory in which this job has begun to record, absolute, or empty. On rank 0, how far
  // the start before had come.
  const std::filesystem::path& recorded() const;
  const RunProgress& earlier_progress() const;

  // For steps that are counted (job/step_marks.h): the first one begins now; an optimizer has ended its
  // step(), by which so many steps have counted; it is destroyed.
  void first_step_begins();
  int optimizer_ended_step(const void* optimizer, std::int64_t end_ns);
  void optimizer_is_gone(const void* optimizer);
  void program_marks_steps();  // by numbers and by spans of category step

  // Errors of this process belong to a rank from now on (job/job_errors.h), or not any more.
  void attend_errors(bool attend);

 private:
  struct Parts;  // job.cc
  void reconnect();
  void refuse_while_joining();
  void meet(MeetingPlace place);
  void leave_others();
  std::unique_ptr<TracedCommunicator> traced(std::unique_ptr<Communicator> communicator,
                                             std::uint16_t number);
  void record_stall_limit();
  void keep_earlier_start_of(const std::filesystem::path& run_dir);
  std::uint16_t number_of(std::span<const int> ranks);

  std::unique_ptr<Parts> parts_;
  std::uint16_t communicators_ = 0;
  std::uint16_t groups_ = 0;  // made by lists of which this rank is the first
};

}  // namespace farandole
