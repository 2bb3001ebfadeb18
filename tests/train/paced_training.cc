// Trains the models of the benchmarks; one rank can be delayed in the "data" of every step. Used to test
// predictions of `farandole analyze --what-if` (tests/compare/what_if).
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <torch/utils.h>
#include <vector>

#include "train/torch_program.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/bench/benchmark_trainee.h"
#include "farandole/train/session.h"

namespace {

using namespace farandole;

struct Pace {
  std::string model = "mlp", run_dir, compression = "none";
  double bucket_mb = 25, delay_ms = 0;
  int steps = 60, delayed_rank = -1;  // 0 steps: until it is killed
  bool stopped = false;               // begins by stopping itself: goes on with SIGCONT
};

Pace parse(int argc, char** argv) {
  Pace pace;
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--model", [&](const auto& v) { pace.model = v; }},
      {"--run-dir", [&](const auto& v) { pace.run_dir = v; }},
      {"--compression", [&](const auto& v) { pace.compression = v; }},
      {"--bucket-mb", [&](const auto& v) { pace.bucket_mb = std::stod(v); }},
      {"--steps", [&](const auto& v) { pace.steps = std::stoi(v); }},
      {"--delayed-rank", [&](const auto& v) { pace.delayed_rank = std::stoi(v); }},
      {"--stopped", [&](const auto& v) { pace.stopped = v == "yes"; }},
      {"--delay-ms", [&](const auto& v) { pace.delay_ms = std::stod(v); }},
  };
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto found = options.find(argv[i]);
    if (found == options.end()) throw UserError(std::string("unknown option ") + argv[i]);
    found->second(argv[i + 1]);
  }
  if (pace.run_dir.empty()) throw UserError("--run-dir is missing");
  return pace;
}

// Samples of a batch of BenchmarkTrainee.
int batch_of(const std::string& model) {
  return model.ends_with("mlp") ? 32 : model == "mnist" ? 64 : 4;
}

void write_facts(const Session& session, const Pace& pace) {
  std::ofstream(std::filesystem::path(pace.run_dir) / "run.json")
      << nlohmann::json{{"ranks", session.size()},
                        {"device", "cpu"},
                        {"global_batch", batch_of(pace.model) * session.size()},
                        {"bucket_mb", pace.bucket_mb},
                        {"threads", torch::get_num_threads()},
                        {"cores", session.node_cores()},
                        {"config", {{"compression", pace.compression}}}};
}

int train(Session& session, const Pace& pace) {
  torch::manual_seed(1);
  std::filesystem::create_directories(pace.run_dir);
  session.start_recording({.run_dir = pace.run_dir});
  DistributedOptimizerOptions options;
  options.buckets.bytes = static_cast<std::size_t>(pace.bucket_mb * 1024 * 1024);
  options.compression = parse_compression(pace.compression);
  const bool late = session.rank() == pace.delayed_rank;
  BenchmarkTrainee trainee(session, pace.model, options, [&] {
    if (late) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pace.delay_ms));
  });
  if (session.rank() == 0) write_facts(session, pace);
  if (pace.stopped) ::raise(SIGSTOP);
  for (int step = 0; step < pace.steps || pace.steps == 0; ++step) {
    session.set_step(step);
    trainee.steps(1);
  }
  session.set_step(-1);
  return 0;
}

}  // namespace

int paced_training(int argc, char** argv) {
  return run_session("paced_training", argc, argv,
                     [&](Session& session) { return train(session, parse(argc, argv)); });
}
