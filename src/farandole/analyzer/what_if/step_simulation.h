// Discrete-event simulation of training steps: ranks compute, buckets are reduced, ranks wait for each other.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "farandole/analyzer/what_if/shared_cores.h"

namespace farandole {

// The operations of a rank's training thread in a step, in order.
struct StepOperation {
  enum class Kind : std::uint8_t {
    work,   // Compute for `ns`.
    pause,  // Idle for `ns`.
    push,   // The next bucket is full.
    poll,   // Continue reductions in flight as far as possible without waiting.
    await,  // Wait until bucket `index` is reduced.
    meet,   // A collective on the training thread: number `index` of this step on all ranks.
  };
  Kind kind = Kind::work;
  std::uint32_t index = 0;
  double ns = 0;  // For meet: from the last arrival to the end.
};

struct BucketCost {
  double before_ns = 0;  // Work of a rank before it arrives, such as compression.
  double part_ns = 0;    // A rank's part of the reduction after all ranks have arrived.
  double after_ns = 0;
};

struct SimulatedMachine {
  std::vector<std::size_t> node_of_rank;
  double cores = 0;            // Per node; 0: sufficient.
  double threads = 1;          // Threads that the training thread's work uses.
  bool caller_driven = true;   // True: the training thread reduces buckets; false: a thread beside it.
  bool parts_are_work = true;  // True: parts use cores; false: the network.
  double wake_ns = 0;          // Delay between the end of a wait and the rank's next work.
};

struct SimulatedRun {
  std::vector<double> period_ms;  // From the first begin of each step to that of the next, or to the end.
  double length_ns = 0;
};

class StepSimulation {
 public:
  // Appends the operations of rank `rank` in step `step`. There must be as many `push` operations as buckets.
  using Program = std::function<void(std::size_t rank, std::size_t step, std::vector<StepOperation>& into)>;

  StepSimulation(SimulatedMachine machine, std::vector<BucketCost> buckets, Program program);
  SimulatedRun run(std::size_t steps);

 private:
  struct Meeting {  // All ranks at a bucket or a collective in a step.
    std::size_t arrived = 0;
    std::size_t parts = 0;  // Parts that are done.
    std::vector<std::size_t> waiting;
    void begin() {
      arrived = parts = 0;
      waiting.clear();
    }
  };
  struct Meetings {
    std::size_t step = SIZE_MAX;
    std::vector<Meeting> buckets, collectives;
  };
  enum class Reducer : std::uint8_t { idle, before, arrived, part, gathering, after };
  struct Rank {
    std::size_t step = 0;
    std::vector<StepOperation> operations;
    std::size_t next = 0;
    std::size_t pushed = 0, reduced = 0;
    bool in_flight = false, part_running = false, part_done = false;  // For caller-driven progress.
    bool in_meeting = false;                                          // The rank has arrived.
    std::size_t awaited = 0;                                          // Number of buckets; 0: none.
    Reducer reducer = Reducer::idle;
  };

  std::size_t ranks() const { return machine_.node_of_rank.size(); }
  Meetings& meetings(std::size_t step);
  Meeting& bucket_of(const Rank& rank) { return meetings(rank.step).buckets[rank.reduced]; }
  void work(std::size_t worker, double ns, double demand);
  void wake(std::size_t worker, double after_ns) { wakes_.push({now_ + after_ns, worker}); }
  void wake_all(Meeting& meeting, double after_ns);
  void resume(std::size_t worker);
  void train(std::size_t rank);
  bool begin_step(std::size_t rank);
  bool perform(std::size_t rank, const StepOperation& operation);
  void start_next(std::size_t rank);
  bool get_on(std::size_t rank, bool may_wait, std::size_t until);
  bool await_thread(std::size_t rank, std::size_t until);
  bool meet(std::size_t rank, const StepOperation& operation);
  void reduce(std::size_t rank);
  bool reduce_further(std::size_t rank);

  const SimulatedMachine machine_;
  const std::vector<BucketCost> buckets_;
  const Program program_;
  SharedCores cores_;
  using Wake = std::pair<double, std::size_t>;  // Time and worker.
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  std::vector<Rank> ranks_;
  Meetings meetings_[2];
  std::vector<double> begins_;  // Indexed by step.
  std::size_t steps_ = 0;
  double now_ = 0;
  double end_ = 0;
};

}  // namespace farandole
