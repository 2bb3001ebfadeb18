// A program's part in the job: its rank, its device, the collectives on tensors, the timeline. Make one at
// the start of main and keep it to the end; used by the main thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/call_board.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi_job.h"
#include "farandole/comm/traced_communicator.h"
#include "farandole/comm/watchdog.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class Recording;

struct RecordingOptions {
  std::filesystem::path
      run_dir;  // gets recorder/rank-0003.ftl of each rank and, at the end, timeline.json.gz from rank 0
  StepWindow window;
  std::size_t recorder_bytes = std::size_t{64} << 20;
};

// Collectives: every rank calls the same ones in the same order. Tensors may be non-contiguous; on every rank
// the same shape and type, where nothing else is said. All throw UserError for types or operations that make
// no sense.
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
  const std::string& node() const { return job_->layout().node; }
  const std::vector<std::string>& hosts() const { return job_->layout().hosts; }  // by rank
  torch::Device device() const { return torch::kCPU; }

  // Reduced over all ranks; bit-wise the same on each.
  torch::Tensor allreduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::average);
  void allreduce_(torch::Tensor& tensor, ReduceOp op = ReduceOp::average);  // in place
  // Joined along the first dimension in rank order; first dimensions may differ between ranks.
  torch::Tensor all_gather(const torch::Tensor& tensor);
  // In place: root's values on every rank.
  void broadcast_(torch::Tensor& tensor, int root = 0);
  // This rank's rows of the reduction: rank r gets rows [r·n/size …) of the n rows, the first n % size ranks
  // one more.
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  // splits[r] rows go to rank r (default: equal shares); returns what arrived, in rank order. Splits may
  // differ between ranks.
  torch::Tensor all_to_all(const torch::Tensor& tensor, std::vector<std::int64_t> splits = {});
  void barrier();

  // Rank 0's parameters and buffers.
  void broadcast(torch::nn::Module& module);
  // Rank 0's state and options; Adam, AdamW, SGD, RMSprop, Adagrad.
  void broadcast(torch::optim::Optimizer& optimizer);
  void broadcast(std::string& text, int root = 0);

  // Runs `work` (no collectives inside) on every rank; where it throws on any, every rank throws that of the
  // lowest such rank.
  void together(const std::function<void()>& work);

  // From now on; collective. Call before making objects that use the timeline.
  void start_recording(const RecordingOptions& options);
  Timeline& timeline() { return *timeline_; }
  // Merges all ranks' records into RUN/timeline.json.gz: collective, called by the destructor if it was not
  // before.
  void publish_timeline();

  // How a thread that reduces gradients beside the training thread had best wait. On 2 cores, 2 ranks' steps
  // were 7 to 10 % shorter (gpt) with spinning inside MPI, in spite of the cores it takes; 4 ranks' the same,
  // where napping is kinder to others.
  Waiting waiting_for_gradients() const;
  // A further communicator over all ranks, for a thread of its own; collective. Must not outlive the session.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting);
  // The same over a group of ranks, in their order there. All ranks of the job call it at the same time, each
  // with the group that it belongs to.
  std::unique_ptr<TracedCommunicator> new_communicator(Waiting waiting, std::span<const int> ranks);
  Communicator& communicator() { return *communicator_; }

  // When a collective counts as stalled; from now on, instead of what the environment said.
  void watch_stalls(const WatchdogOptions& options);
  // For those who can say what a collective's name stands for.
  CallBoard& call_board() { return calls_; }
  // This rank's user knows why the job ends: the other ranks need not find out. Returns whether that is news,
  // for an error that says a peer was lost; otherwise this rank's watchdog has said it already.
  bool is_ending(ExitCode code);

 private:
  std::unique_ptr<MpiJob> job_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<Recording> recording_;
  CallBoard calls_;
  std::unique_ptr<Communicator> communicator_;
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
