// The overhead of the timeline, of a Run, and of PyTorch's profiler on training steps of a model of
// BenchmarkTrainee. Blocks of steps with the timeline, with timeline and Run, with the profiler, and with
// none of them alternate.
//
//   farandole run -n 2 -- build/bin/overhead_benchmark MODEL SECONDS FOLDER
//
// The recorder files are in a new folder in FOLDER, which all ranks must see.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <random>
#include <string>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/utils.h>
#include <vector>

#include "train/torch_program.h"

#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/quantile.h"
#include "farandole/bench/benchmark_trainee.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/train/run.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

constexpr int warmup_steps = 10;
// Long enough that the after-effects of a block hardly affect the next block.
constexpr double block_ms = 40;
constexpr int profiler_every = 4;  // In rounds. Start and end of the profiler take longer than a block.

enum class Watched { by_nobody, by_timeline, by_run, by_profiler };

// The default options of torch.profiler for the CPU.
class ProfiledByTorch {
 public:
  ProfiledByTorch() {
    using namespace torch::profiler::impl;
    const ProfilerConfig config(ProfilerState::KINETO);
    torch::autograd::profiler::prepareProfiler(config, {ActivityType::CPU});
    torch::autograd::profiler::enableProfiler(config, {ActivityType::CPU});
  }
  ~ProfiledByTorch() { torch::autograd::profiler::disableProfiler(); }
  ProfiledByTorch(const ProfiledByTorch&) = delete;
  ProfiledByTorch& operator=(const ProfiledByTorch&) = delete;
};

// The times of a block of steps.
struct Block {
  double ms = 0, processor_ms = 0;
};
// Of one round, indexed by Watched. The block with the profiler is empty in most rounds.
using Blocks = std::array<Block, 4>;

double thread_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

std::uint64_t recorded_events(const Timeline& timeline) {
  const RecorderFile file(timeline.file());
  std::uint64_t events = 0;
  for (const auto& thread : file.threads()) events += thread.recorded;
  return events;
}

// What `watched` added, and its 95 % interval: medians over the rounds, so that disturbed rounds
// do not count.
std::string added_by(Watched watched, const std::vector<Blocks>& rounds, double Block::*time) {
  std::vector<double> logarithms;
  for (const Blocks& round : rounds)
    if (const Block& with = round[static_cast<std::size_t>(watched)]; with.ms > 0)
      logarithms.push_back(std::log(with.*time / (round[0].*time)));
  const auto percent = [](double logarithm) { return 100 * std::expm1(logarithm); };
  const auto text = fmt::format("{:.2f} %", percent(quantile(logarithms, 0.5)));
  const auto interval = median_interval(logarithms);
  return interval
             ? fmt::format("{} ({:.2f} to {:.2f})", text, percent(interval->low), percent(interval->high))
             : text;
}

class Rounds {
 public:
  Rounds(Session& session, const std::string& model, const std::filesystem::path& folder)
      : session_(session),
        run_(session, {.run_dir = folder, .global_batch = 1}),
        trainee_(session, model, {}) {
    trainee_.track(run_);
    for (const auto watched :
         {Watched::by_nobody, Watched::by_timeline, Watched::by_run, Watched::by_profiler})
      block(watched, warmup_steps);
  }

  // Returns the time on rank 0, so that all ranks have the same value.
  double step_ms() {
    double ms = block(Watched::by_nobody, warmup_steps).ms / warmup_steps;
    session_.internals().communicator().broadcast("step time", &ms, sizeof ms, 0);
    return ms;
  }

  std::vector<Blocks> run(int count, int steps_a_block) {
    std::vector<Blocks> rounds(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      std::vector order = {Watched::by_nobody, Watched::by_timeline, Watched::by_run};
      if (i % profiler_every == 0) order.push_back(Watched::by_profiler);
      std::shuffle(order.begin(), order.end(), random_);
      for (const auto watched : order)
        rounds[i][static_cast<std::size_t>(watched)] = block(watched, steps_a_block);
    }
    for (Blocks& round : rounds)
      for (Block& one : round)
        session_.internals().communicator().allreduce("processor time", &one.processor_ms, 1, DType::float64,
                                                      ReduceOp::sum);
    run_.finish();
    return rounds;
  }

 private:
  Block block(Watched watched, int steps) {
    std::optional<ProfiledByTorch> profiler;
    if (watched == Watched::by_profiler) profiler.emplace();
    session_.barrier();
    const std::int64_t start_ns = now_ns();
    const double start_ms = thread_ms();
    for (int i = 0; i < steps; ++i) {
      session_.set_step(watched == Watched::by_timeline ? ++recorded_steps_ : 0);
      trainee_.steps(1);
      if (watched == Watched::by_run && !run_.step({{"loss", 1.0}})) throw Error("the run is to stop");
    }
    const double processor_ms = thread_ms() - start_ms;
    return {static_cast<double>(now_ns() - start_ns) * 1e-6, processor_ms};
  }

  Session& session_;
  Run run_;
  BenchmarkTrainee trainee_;
  std::int64_t recorded_steps_ = 0;
  std::mt19937 random_{1};  // Equal order on all ranks.
};

// The session must record from step 1 on; steps without the timeline run as step 0.
void measure(Session& session, const std::string& model, double seconds,
             const std::filesystem::path& folder) {
  torch::manual_seed(1);
  Rounds rounds(session, model, folder);
  const double step_ms = rounds.step_ms();
  const int steps_a_block = std::max(1, static_cast<int>(block_ms / step_ms));
  const double round_ms = (3 + 1.0 / profiler_every) * steps_a_block * step_ms;
  const int count = std::max(6 * profiler_every, static_cast<int>(seconds * 1e3 / round_ms));
  const auto events_before = recorded_events(session.timeline());
  const auto measured = rounds.run(count, steps_a_block);
  const auto events = recorded_events(session.timeline()) - events_before;
  if (session.rank() != 0) return;
  fmt::print("{} on {} ranks, {:.2f} ms per step, {:.0f} events per step; medians (95 % intervals)\n", model,
             session.size(), step_ms, static_cast<double>(events) / (double(count) * steps_a_block));
  for (const auto& [name, watched] :
       {std::pair("timeline", Watched::by_timeline), std::pair("timeline and Run", Watched::by_run),
        std::pair("PyTorch's profiler", Watched::by_profiler)}) {
    fmt::print("{:<20} {:<16} {}\n", name, "wall time", added_by(watched, measured, &Block::ms));
    fmt::print("{:<20} {:<16} {}\n", "", "processor time", added_by(watched, measured, &Block::processor_ms));
  }
}

}  // namespace
}  // namespace farandole

int overhead_benchmark(int argc, char** argv) {
  using namespace farandole;
  ::setenv("KINETO_LOG_LEVEL", "99", 0);  // Otherwise Kineto reports an error on a machine without a GPU.
  return run_session("overhead_benchmark", argc, argv, [&](Session& session) {
    if (argc != 4 || std::atof(argv[2]) <= 0)
      throw UserError("usage: overhead_benchmark MODEL SECONDS FOLDER");
    std::optional<TemporaryFolder> folder;
    std::string path;
    session.together([&] {
      if (session.rank() != 0) return;
      folder.emplace(argv[3]);
      path = folder->path();
    });
    session.broadcast(path);
    session.start_recording({.run_dir = path, .window = {.first = 1}});
    measure(session, argv[1], std::atof(argv[2]), path);
    session.start_recording({.run_dir = {}, .window = {0, -1}});  // Closes the files.
    session.barrier();
    return 0;
  });
}
