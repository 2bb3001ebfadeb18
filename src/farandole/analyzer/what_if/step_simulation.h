// Runs training steps that never were: ranks that compute, buckets that are reduced, and who waits for whom.
// One thread per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "farandole/analyzer/what_if/shared_cores.h"

namespace farandole {

// What a rank's training thread does in a step, in order.
struct StepOperation {
  enum class Kind : std::uint8_t {
    work,   // computes for `ns`
    pause,  // does nothing for `ns`
    push,   // the next bucket is full
    poll,   // gets on with what is in flight, as far as that waits for nobody
    await,  // until bucket `index` is reduced
    meet,   // a collective of its own: all ranks' `index`-th of this step
  };
  Kind kind = Kind::work;
  std::uint32_t index = 0;
  double ns = 0;  // meet: from the last arrival to the end
};

struct BucketCost {
  double before_ns = 0;  // a rank's own work before it arrives, such as compressing
  double part_ns = 0;    // a rank's part of the reduction, when all have arrived
  double after_ns = 0;
};

struct SimulatedMachine {
  std::vector<std::size_t> node_of_rank;
  double cores = 0;            // of a node; 0: enough
  double threads = 1;          // of a training thread's work
  bool caller_driven = true;   // buckets are reduced by the training thread, else by one beside it
  bool parts_are_work = true;  // of cores, else of the network
  double wake_ns = 0;          // from what a rank waits for until it goes on
};

struct SimulatedRun {
  std::vector<double> period_ms;  // from each step's first beginning to the next one's, or to the end
  double length_ns = 0;
};

class StepSimulation {
 public:
  // Appends what rank `rank` does in step `step`: as often `push` as there are buckets.
  using Program = std::function<void(std::size_t rank, std::size_t step, std::vector<StepOperation>& into)>;

  StepSimulation(SimulatedMachine machine, std::vector<BucketCost> buckets, Program program);
  SimulatedRun run(std::size_t steps);

 private:
  struct Meeting {  // of all ranks at a bucket or a collective, in a step
    std::size_t arrived = 0;
    std::size_t parts = 0;  // done
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
    bool in_flight = false, part_running = false, part_done = false;  // in passing
    bool in_meeting = false;                                          // has arrived
    std::size_t awaited = 0;                                          // buckets; 0: none
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
  using Wake = std::pair<double, std::size_t>;  // when, and which worker
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  std::vector<Rank> ranks_;
  Meetings meetings_[2];
  std::vector<double> begins_;  // by step
  std::size_t steps_ = 0;
  double now_ = 0;
  double end_ = 0;
};

}  // namespace farandole
