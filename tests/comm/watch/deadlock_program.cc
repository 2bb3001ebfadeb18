// A job whose ranks make a mistake: deadlock_program MISTAKE. Its steps are as those of an optimizer: an
// allreduce of the gradients, beside which the training thread computes.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "farandole/base/error.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/traced_communicator.h"

namespace farandole {
namespace {

void work_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

class Program {
 public:
  Program(World& job, std::string mistake) : mistake_(std::move(mistake)) {
    auto layout = job.layout();
    if (const char* ranks = std::getenv("RANKS_A_NODE"); ranks != nullptr)
      for (int r = 0; r < layout.size; ++r) layout.nodes[static_cast<std::size_t>(r)] = r / std::atoi(ranks);
    watchdog_ =
        make_watchdog(job.control(), layout, calls_, [&job](int code) { abort_job(&job.control(), code); });
    watchdog_->set_options(WatchdogOptions::from_environment());
    control_.emplace(job.new_communicator(Waiting::yielding), timeline_, 0, &calls_);
    gradients_.emplace(job.new_communicator(Waiting::yielding), timeline_, 1, &calls_);
  }

  void run() {
    const int rank = control_->rank;
    const bool alone = rank == 0, last = rank == control_->size - 1;
    for (int step = 0; step < (mistake_ == "batches" && last ? 12 : 20); ++step) {
      if (mistake_ == "crossed" && step == 7) {
        if (alone) reduce(*control_, "weights of the loss");
        make_step();
        if (!alone) reduce(*control_, "weights of the loss");
      } else {
        make_step();
      }
      if (mistake_ == "validation" && alone && step == 11) reduce(*control_, "accuracy");
      // Others wait longer than the limit, for a rank that works, and for one that rests.
      if (mistake_ == "work" && alone && step == 5) work_for(8);
      if (mistake_ == "rest" && alone && step == 5) std::this_thread::sleep_for(std::chrono::minutes(2));
    }
    if (mistake_ == "final" && alone) reduce(*control_, "accuracy");
    // No mistake: this rank has more to do, and the others wait for it.
    if (mistake_ == "late" && alone) work_for(5);
    control_.reset();
    gradients_.reset();
    watchdog_.reset();
  }

 private:
  static void reduce(Communicator& communicator, const char* name) {
    float value = 1;
    communicator.allreduce(name, &value, 1, DType::float32, ReduceOp::sum);
  }
  void make_step() {
    float gradient[256] = {};
    if (auto* const nonblocking = gradients_->nonblocking_allreduce()) {
      nonblocking->start("bucket 0", gradient, 256, DType::float32, ReduceOp::sum);
      work_for(0.001);
      nonblocking->wait();
    } else {
      gradients_->allreduce("bucket 0", gradient, 256, DType::float32, ReduceOp::sum);
    }
    calls_.count_step();
  }

  const std::string mistake_;
  Timeline timeline_;
  CollectiveRegistry calls_;
  std::unique_ptr<Watchdog> watchdog_;
  std::optional<TracedCommunicator> control_, gradients_;
};

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: deadlock_program MISTAKE\n", stderr), 64;
  try {
    farandole::World job;
    farandole::Program(job, argv[1]).run();
  } catch (const farandole::Error& error) {
    std::fprintf(stderr, "deadlock_program: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
