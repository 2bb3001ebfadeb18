// A job for the stall tests, controlled by files. FOLDER/stop ends it normally. While FOLDER/block exists,
// rank ROOT_CAUSE misbehaves as SCENARIO says. Each rank writes its process id to FOLDER/pid.RANK.
// FOLDER/blocked shows that the misbehaviour has begun. With RANKS_A_NODE in the environment, each watchdog
// takes only so many ranks for those of its node.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

struct Program {
  std::filesystem::path folder;
  std::string scenario;
  int root_cause;

  bool exists(const char* name) const { return std::filesystem::exists(folder / name); }
  void write(const std::string& name, long value) const {
    std::ofstream(folder / (name + ".tmp")) << value << '\n';
    std::filesystem::rename(folder / (name + ".tmp"), folder / name);
  }
  void run(World& job) const;
  void misbehave(Timeline& timeline) const;
};

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Program::misbehave(Timeline& timeline) const {
  write("blocked", ::getpid());
  if (scenario == "data") {
    const Span step(timeline, Category::step, "step");
    const Span load(timeline, Category::data, "load a batch");
    while (exists("block")) nap();
  } else if (scenario == "exit") {
    std::_Exit(3);
  } else if (scenario == "handler") {
    while (exists("block")) nap();
  }
}

void Program::run(World& job) const {
  Timeline timeline;
  CollectiveRegistry registry;
  TracedCommunicator control(job.new_communicator(Waiting::yielding), timeline, 0, &registry);
  TracedCommunicator gradients(job.new_communicator(Waiting::yielding), timeline, 1, &registry);
  const auto explanation =
      registry.explain(1, [](std::string_view name) -> std::optional<CollectiveRegistry::Meaning> {
        if (name == "bucket 0") return CollectiveRegistry::Meaning{{"fc1.weight", "fc1.bias"}, {}};
        if (name.empty()) return CollectiveRegistry::Meaning{{"fc1.weight", "fc1.bias"}, {"fc1.bias"}};
        return std::nullopt;
      });
  auto layout = job.layout();
  if (const char* ranks = std::getenv("RANKS_A_NODE"); ranks != nullptr)
    for (int r = 0; r < layout.size; ++r) layout.nodes[static_cast<std::size_t>(r)] = r / std::atoi(ranks);
  const auto watchdog =
      make_watchdog(job.control(), layout, registry, [&job](int code) { abort_job(&job.control(), code); });
  watchdog->set_options(WatchdogOptions::from_environment());
  write("pid." + std::to_string(control.rank), ::getpid());
  for (;;) {
    int stop = exists("stop") ? 1 : 0;
    control.broadcast("stop", &stop, sizeof stop, 0);
    if (stop != 0) return;
    if (control.rank == root_cause && exists("block")) misbehave(timeline);
    float gradient[256] = {};
    const Span span(timeline, Category::wait, "wait for gradients");
    gradients.allreduce("bucket 0", gradient, 256, DType::float32, ReduceOp::sum);
    nap();
  }
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("usage: stall_program FOLDER SCENARIO RANK\n", stderr), 64;
  const farandole::Program program{argv[1], argv[2], std::atoi(argv[3])};
  if (program.scenario == "handler") std::signal(SIGTERM, [](int) { std::_Exit(9); });
  try {
    farandole::World job;
    program.run(job);
  } catch (const farandole::Error& error) {
    std::fprintf(stderr, "stall_program: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
