// A program's part in the job: its rank, its device, the collectives on tensors, the timeline. Make one at
// the start of main and keep it to the end; used by the main thread.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/mpi_job.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/comm/watch/signal_event.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/timeline.h"
#include "farandole/train/group.h"
#include "farandole/train/tensor_collectives.h"

namespace farandole {

class Recording;
class TraceRequests;

struct RecordingOptions {
  std::filesystem::path
      run_dir;  // gets recorder/rank-0003.ftl of each rank and, at the end, timeline.json.gz from rank 0
  StepWindow window{};
  StepWindow gpu_activity{};  // steps whose kernels and copies are recorded, where there is a GPU
  std::size_t recorder_bytes = std::size_t{64} << 20;
  // Where recorders lie meanwhile, see timeline/recorder/recorder_place.h; none: as FARANDOLE_RECORDER_DIR
  // says.
  std::optional<std::string> recorder_dir{};
  std::size_t merge_limit = 64;  // ranks in timeline.json.gz; of more, a sample; 0: any number
};

class Session {
 public:
  // Starts MPI and the watch over stalls and lost ranks; sets LibTorch's threads to this rank's share of the
  // node's cores, unless OMP_NUM_THREADS is set. With the environment variable FARANDOLE_RUN_DIR the timeline
  // is recorded there from the start. Throws UserError where this process is alone in a larger job, or
  // FARANDOLE_STALL_SECONDS or FARANDOLE_STALL_ABORT is no number.
  Session(int argc, const char* const* argv);
  // Publishes the timeline and ends MPI: a collective operation. While an exception is on its way it says so
  // and ends the whole job instead, because the other ranks would wait forever; prefer together() and
  // run_session() for failures to be reported well.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return job_->layout().rank; }
  int size() const { return job_->layout().size; }
  int local_rank() const { return job_->layout().local_rank; }
  int local_size() const { return job_->layout().local_size; }
  int node_cores() const { return job_->layout().node_cores; }  // that its ranks may use, all together
  const std::string& node() const { return job_->layout().node; }
  const std::vector<std::string>& hosts() const { return job_->layout().hosts; }  // by rank
  torch::Device device() const { return torch::kCPU; }

  // As TensorCollectives has them, over all ranks of the job.
  torch::Tensor allreduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::average) {
    return collectives_.allreduce(tensor, op);
  }
  void allreduce_(torch::Tensor& tensor, ReduceOp op = ReduceOp::average) {
    collectives_.allreduce_(tensor, op);
  }
  std::vector<torch::Tensor> allreduce(const std::vector<torch::Tensor>& tensors,
                                       ReduceOp op = ReduceOp::average) {
    return collectives_.allreduce(tensors, op);
  }
  void allreduce_(std::vector<torch::Tensor>& tensors, ReduceOp op = ReduceOp::average) {
    collectives_.allreduce_(tensors, op);
  }
  torch::Tensor all_gather(const torch::Tensor& tensor) { return collectives_.all_gather(tensor); }
  void broadcast_(torch::Tensor& tensor, int root = 0) { collectives_.broadcast_(tensor, root); }
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum) {
    return collectives_.reduce_scatter(tensor, op);
  }
  torch::Tensor all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits = {}) {
    return collectives_.all_to_all(tensor, std::move(splits));
  }
  void barrier() { collectives_.barrier(); }
  void broadcast(torch::nn::Module& module, int root = 0) { collectives_.broadcast(module, root); }
  void broadcast(torch::optim::Optimizer& optimizer) { collectives_.broadcast(optimizer); }
  void broadcast(std::string& text, int root = 0) { collectives_.broadcast(text, root); }
  TensorCollectives& collectives() { return collectives_; }

  // The job's ranks that `ranks` names, numbered there in this order. Collective over all ranks of the job,
  // which all give the same list; null on those that it does not name. Throws UserError on all ranks where
  // the lists differ, or name nobody, a rank twice, or one that does not exist. Must not outlive the session,
  // nor its call of start_recording.
  std::unique_ptr<Group> new_group(std::span<const int> ranks);
  std::unique_ptr<Group> new_group(std::initializer_list<int> ranks) {
    return new_group(std::span(ranks.begin(), ranks.size()));
  }

  // Runs `work` (no collectives inside) on every rank; where it throws on any, every rank throws that of the
  // lowest such rank.
  void together(const std::function<void()>& work);

  // From now on; collective. Call before making objects that use the timeline. SIGUSR2 to any rank asks for
  // the trace of what was recorded so far (comm/recording/trace_requests.h); where nothing is recorded, it
  // does nothing. While it starts and while the timeline is published no other thread is in an MPI call of
  // the program, should those be recorded (farandole run --trace-mpi).
  void start_recording(const RecordingOptions& options);
  Timeline& timeline() { return *timeline_; }
  // What is recorded from now on belongs to this step; -1: to none.
  void set_step(std::int64_t step);
  // Why no GPU activity is recorded; empty where it is.
  const std::string& no_gpu_activity() const { return no_gpu_activity_; }
  // Merges all ranks' records into RUN/timeline.json.gz: collective, called by the destructor if it was not
  // before.
  void publish_timeline();

  // How a thread that reduces gradients beside the training thread had best wait. On 2 cores, 2 ranks' steps
  // were 7 to 10 % shorter (gpt) with spinning inside MPI, in spite of the cores it takes; 4 ranks' the same,
  // where napping is kinder to others.
  Waiting waiting_for_gradients() const;
  // A further communicator over all ranks, for a thread of its own; collective. Must not outlive the session.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting);
  // The same over a group; collective over its ranks.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, Group& group);
  Communicator& communicator() { return collectives_.communicator(); }

  // When a collective counts as stalled; from now on, instead of what the environment said.
  void watch_stalls(const WatchdogOptions& options);
  // For those who can say what a collective's name stands for.
  CollectiveRegistry& collective_registry() { return calls_; }
  // This rank's user knows why the job ends: the other ranks need not find out. Returns whether that is news,
  // for an error that says a peer was lost; otherwise this rank's watchdog has said it already.
  bool is_ending(ExitCode code);

 private:
  void refuse_while_joining() const;
  std::unique_ptr<TracedCommunicator> traced(std::unique_ptr<Communicator> communicator,
                                             std::uint16_t number);

  std::unique_ptr<MpiJob> job_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<GpuActivity> gpu_activity_;
  std::string no_gpu_activity_ = "nothing is recorded";
  std::unique_ptr<Recording> recording_;
  SignalEvent trace_asked_;
  std::unique_ptr<TraceRequests> trace_requests_;
  CollectiveRegistry calls_;
  TensorCollectives collectives_;
  std::uint16_t communicators_ = 0;
  std::unique_ptr<Watchdog> watchdog_;  // null in a job of one rank
  int exceptions_at_start_;
};

// Runs `body` in a session and turns its failures into one line on stderr and an exit code: a failure that
// all ranks agreed on (Session::together) is printed by one of them, and the job ends in order; any other is
// printed by the rank it happened on, which then ends the whole job.
int run_session(const std::string& program, int argc, const char* const* argv,
                const std::function<int(Session&)>& body);

}  // namespace farandole
