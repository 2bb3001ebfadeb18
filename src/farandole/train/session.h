// A program's part in the job: its rank, its device, collectives on tensors, and the timeline. Create it at
// the start of main and keep it to the end.
// Thread safety: call from the training thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/job/recording_options.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/group.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

// When a session begins to record if FARANDOLE_RUN_DIR is set. A program that may find that there is nothing
// to do calls start_recording() itself, so that it does not replace the timeline of the earlier start.
enum class RecordFrom { start, start_recording };

// Its collectives are those of all ranks of the job. rank() is that of this process in the job.
class Session : public TensorCollectives {
 public:
  // Starts MPI and the watchdogs for stalls and lost ranks. From now on, an exception that leaves main ends
  // the job with one line and an exit code, as in run_session(), and so does exit() inside the session. Sets
  // the number of LibTorch's threads to this rank's share of the node's cores, unless OMP_NUM_THREADS is set.
  // If the environment variable FARANDOLE_RUN_DIR is set, the timeline is recorded there from the start.
  // Throws: UserError if this process is alone in a larger job, or if FARANDOLE_STALL_SECONDS or
  // FARANDOLE_STALL_ABORT is not a number.
  Session(int argc, const char* const* argv);
  // Writes the timeline and ends MPI. If an exception is caught outside of the session's scope, it prints a
  // message and ends the whole job instead, because the other ranks would wait forever.
  // Collective: every rank of the job must call this in the same order.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int local_rank() const;  // Rank among the ranks of this node.
  int local_size() const;  // Number of ranks of this node.
  int node_cores() const;  // Cores that the ranks of this node may use together.
  const std::string& node() const;
  const std::vector<std::string>& hosts() const;  // Indexed by rank.
  // How the nodes exchange data and why, for the user; std::nullopt if there is one node.
  std::optional<std::string> between_nodes() const;
  // How ranks exchange data from now on: "auto", which measures what is faster; "hierarchical", which is
  // shared memory within nodes and links between them; or "mpi", which is MPI's collectives. Until this is
  // called, FARANDOLE_TRANSPORT decides. Call it before making optimizers and groups.
  // Throws: UserError on all ranks for any other text.
  // Collective: every rank of the job must call this in the same order.
  void use_transport(std::string_view wish);
  // Where this rank computes: the CPU unless use_device() has chosen a GPU.
  torch::Device device() const;
  // `wish`: "cpu"; "cuda", one GPU for each rank; or "auto", GPUs if every rank can have one, or else the
  // CPU. Up to `ranks_per_gpu` ranks share a GPU; then all ranks must be on one node. Call it before other
  // functions of LibTorch and before making optimizers and groups. Returns what was chosen and, for "auto",
  // why, as text for people.
  // Throws: UserError on all ranks for any other text, if a node has too few GPUs for its ranks, or if a GPU
  // cannot be used.
  // Collective: every rank of the job must call this in the same order.
  std::string use_device(std::string_view wish, int ranks_per_gpu = 1);

  // Creates a group of the ranks in `ranks`, which are numbered in this order. Returns nullptr on ranks that
  // are not in the list. The group must not outlive the session or a call of start_recording.
  // Throws: UserError on all ranks if the lists differ, are empty, or contain a rank twice or a rank
  // that does not exist.
  // Collective: every rank of the job must call this in the same order.
  std::unique_ptr<Group> new_group(std::span<const int> ranks);
  std::unique_ptr<Group> new_group(std::initializer_list<int> ranks) {
    return new_group(std::span(ranks.begin(), ranks.size()));
  }

  // Runs `work`, which must not contain collectives, on every rank.
  // Collective: every rank of the job must call this in the same order.
  // Throws: if `work` throws on some ranks, every rank throws the error of the lowest of them.
  void together(const std::function<void()>& work);

  // Records the timeline from now on. Call it before making objects that use the timeline. SIGUSR2 to any
  // rank then asks for the trace of what was recorded so far. If MPI calls are recorded (farandole run
  // --trace-mpi), no other thread may call MPI while recording starts or while the timeline is published.
  // Collective: every rank of the job must call this in the same order.
  // Throws: UserError if the recorders' folder cannot be written; Error if a recorder cannot be created.
  void start_recording(const RecordingOptions& options);
  // Returns the timeline for spans, counters and instants of the program, for example
  // Span(session.timeline(), Category::data, "load"). It is another object after start_recording().
  Timeline& timeline();
  // Records from now on belong to this step; -1: to no step.
  void set_step(std::int64_t step);
  // Returns why no GPU activity is recorded; empty if it is recorded.
  const std::string& no_gpu_activity() const;
  // Merges the records of all ranks into RUN/timeline.json.gz. The destructor calls this
  // if it has not been called before.
  // Collective: every rank of the job must call this in the same order.
  // Throws: Error with ExitCode::peer_lost if another rank was lost.
  void publish_timeline();

  class Internals;  // train/session_internals.h, which is not installed
  Internals& internals() { return *internals_; }

 private:
  friend int run_session(const std::string& program, int argc, const char* const* argv,
                         const std::function<int(Session&)>& body, RecordFrom from);
  explicit Session(RecordFrom from);

  std::unique_ptr<Internals> internals_;
  int exceptions_at_start_;
};

// Runs `body` in a session and converts an error into one line on stderr and an exit code (base/error.h). The
// line begins with `program`. An error on which all ranks agreed (Session::together) is printed by one rank,
// and the job ends normally. Any other error is printed by its rank, which then ends the whole job.
int run_session(const std::string& program, int argc, const char* const* argv,
                const std::function<int(Session&)>& body, RecordFrom from = RecordFrom::start);

}  // namespace farandole
