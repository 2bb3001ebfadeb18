// A training-like job in which rank RANK fails in step 3 according to SCENARIO. If FOLDER is given, the
// timeline and the process ids (FOLDER/pid.RANK) are written there.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/watch/watchdog.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/recorder/recorder_place.h"

namespace farandole {
namespace {

constexpr int fatal_step = 3;

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void come_to_grief(const std::string& how) {
  if (how == "kill") ::raise(SIGKILL);
  if (how == "crash") ::raise(SIGSEGV);
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "leave") ::_exit(0);
  if (how == "throw") throw std::runtime_error("the batch has no samples");
  if (how == "disk") {
    std::ofstream full("/dev/full");
    full << "x" << std::flush;
    std::fputs("doomed_program: write model.h5: No space left on device\n", stderr);
    std::_Exit(1);
  }
  while (how == "hang") nap();
  if (how == "memory")
    for (std::vector<std::vector<char>> taken;;) taken.emplace_back(std::size_t{16} << 20, 'x');
}

struct Program {
  std::filesystem::path folder;
  std::string scenario;
  int root_cause;

  void step(int number, Timeline& timeline, Communicator& gradients) const {
    timeline.set_step(number);
    const Span whole(timeline, Category::step, "step");
    {
      const Span span(timeline, Category::forward, "forward");
      nap();
    }
    {
      const Span span(timeline, Category::backward, "backward");
      if (gradients.rank == root_cause && number == fatal_step && is_fatal()) {
        await_others(gradients);
        come_to_grief(scenario);
      }
    }
    float gradient[256] = {};
    const Span span(timeline, Category::wait, "wait for gradients");
    gradients.allreduce("bucket 0", gradient, 256, DType::float32, ReduceOp::sum);
  }

  bool is_fatal() const { return scenario != "nothing" && scenario != "forever" && scenario != "versions"; }

  // Waits until the recorders show that the ranks are in this step's allreduce.
  void await_others(const Communicator& gradients) const {
    for (int rank = 0; rank < gradients.size; ++rank)
      while (rank != gradients.rank) {
        const auto open = RecorderFile(readable_at(recorder_file(folder, rank))).open(0);
        if (open && open->kind == RecordKind::collective && open->communicator == 1 &&
            open->sequence == fatal_step)
          break;
        nap();
      }
  }

  int steps(Timeline& timeline, Communicator& control, Communicator& gradients, int signals) const {
    for (int number = 0; number < 6 || scenario == "forever"; ++number) {
      step(number, timeline, gradients);
      int asked = std::ifstream(folder / "stop") ? 1 : 0;
      pollfd signalled{signals, POLLIN, 0};
      asked |= ::poll(&signalled, 1, 0) > 0 ? 2 : 0;
      control.allreduce("stop", &asked, 1, DType::int32, ReduceOp::max);
      if (asked >= 2) return static_cast<int>(ExitCode::preempted);
      if (asked == 1) break;
    }
    return 0;
  }

  int run(World& job, int signals) const {
    const auto& layout = job.layout();
    constexpr std::size_t bytes = 1 << 20;
    const auto ranks_here = static_cast<std::size_t>(layout.local_size);
    const auto place = place_recorder(folder, wished_place(), bytes * ranks_here);
    tell_run_dir(folder);
    TimelineOptions options{recorder_file(folder, layout.rank),
                            {},
                            bytes,
                            layout.rank,
                            layout.size,
                            layout.node,
                            place.folder,
                            place.chosen};
    Timeline timeline(options);
    timeline.name_thread("training");
    timeline.set_metadata("mpi", scenario == "versions" ? fmt::format("Open MPI v4.1.{}", layout.rank)
                                                        : World::library_version());
    const auto stalls = WatchdogOptions::from_environment();
    timeline.set_metadata(recorder::stall_seconds_fact, fmt::format("{}", stalls.report_seconds()));
    CollectiveRegistry registry;
    TracedCommunicator control(job.new_communicator(Waiting::yielding), timeline, 0, &registry);
    TracedCommunicator gradients(job.new_communicator(Waiting::yielding), timeline, 1, &registry);
    const auto watchdog =
        make_watchdog(job.control(), layout, registry, [&job](int code) { abort_job(&job.control(), code); });
    watchdog->set_options(stalls);
    std::ofstream(folder / fmt::format("pid.{}", layout.rank)) << ::getpid() << '\n';
    try {
      return steps(timeline, control, gradients, signals);
    } catch (const Error& error) {  // a lost peer; what else is thrown is nobody's to catch
      std::fprintf(stderr, "doomed_program: %s\n", error.what());
      abort_job(&job.control(), static_cast<int>(error.exit_code()));
    }
  }
};

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("doomed_program: FOLDER SCENARIO RANK are missing\n", stderr), 64;
  const farandole::Program program{argv[1], argv[2], std::atoi(argv[3])};
  if (program.scenario == "refuse")
    return std::fputs("farandole train: --lr is 'x'; give a number\n", stderr), 64;
  const auto signals = farandole::signal_descriptor({SIGUSR1});  // blocked before MPI makes threads
  farandole::World job;
  return program.run(job, signals.get());
}
