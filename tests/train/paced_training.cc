// Trains on made-up data as `farandole train` does, with a rank that can be held up in every step: what
// back-tests of `farandole analyze --what-if` are made of (tests/compare/what_if).
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/comm/cores.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/models/model.h"
#include "farandole/train/session.h"

namespace {

using namespace farandole;

struct Pace {
  std::string model = "mlp", run_dir, compression = "none", progress = "auto";
  double bucket_mb = 25, delay_ms = 0;
  int steps = 60, delayed_rank = -1;
};

Pace parse(int argc, char** argv) {
  Pace pace;
  const std::map<std::string, std::function<void(const std::string&)>> options = {
      {"--model", [&](const auto& v) { pace.model = v; }},
      {"--run-dir", [&](const auto& v) { pace.run_dir = v; }},
      {"--compression", [&](const auto& v) { pace.compression = v; }},
      {"--progress", [&](const auto& v) { pace.progress = v; }},
      {"--bucket-mb", [&](const auto& v) { pace.bucket_mb = std::stod(v); }},
      {"--steps", [&](const auto& v) { pace.steps = std::stoi(v); }},
      {"--delayed-rank", [&](const auto& v) { pace.delayed_rank = std::stoi(v); }},
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

struct Workload {
  ModelOptions model;
  DataShape shape;
  torch::Tensor x, y;
};

Workload workload(const std::string& name) {
  if (name == "mlp")
    return {{.name = "mlp", .layers = 4, .width = 1024},
            {{1024}, 1024, false},
            torch::randn({32, 1024}),
            torch::randint(1024, {32}, torch::kInt64)};
  if (name == "gpt")
    return {{.name = "gpt", .layers = 4, .width = 256, .heads = 4, .context = 64},
            {{64}, 256, true},
            torch::randint(256, {4, 64}, torch::kInt64),
            torch::randint(256, {4, 64}, torch::kInt64)};
  if (name == "mnist")
    return {{.name = "mnist"},
            {{1, 28, 28}, 10, false},
            torch::randn({64, 1, 28, 28}),
            torch::randint(10, {64}, torch::kInt64)};
  throw UserError("no such model: " + name);
}

void write_facts(const Session& session, const Pace& pace, std::int64_t batch) {
  std::ofstream(std::filesystem::path(pace.run_dir) / "run.json")
      << nlohmann::json{{"ranks", session.size()},
                        {"device", "cpu"},
                        {"global_batch", batch * session.size()},
                        {"bucket_mb", pace.bucket_mb},
                        {"threads", torch::get_num_threads()},
                        {"cores", allowed_cores()},
                        {"config", {{"compression", pace.compression}}}};
}

int train(Session& session, const Pace& pace) {
  torch::manual_seed(1);
  const auto what = workload(pace.model);
  std::filesystem::create_directories(pace.run_dir);
  session.start_recording({.run_dir = pace.run_dir});
  const auto model = make_model(what.model, what.shape);
  torch::optim::AdamW inner(model->parameters(), torch::optim::AdamWOptions(1e-4));
  DistributedOptimizerOptions options;
  options.buckets.bytes = static_cast<std::size_t>(pace.bucket_mb * 1024 * 1024);
  options.buckets.first_bytes = std::min(options.buckets.first_bytes, options.buckets.bytes);
  options.compression = parse_compression(pace.compression);
  options.progress = parse_progress(pace.progress);
  DistributedOptimizer optimizer(session, inner, model->named_parameters(), options);
  auto& timeline = session.timeline();
  for (int step = 0; step < pace.steps; ++step) {
    session.set_step(step);
    const Span whole(timeline, Category::step, "step");
    {
      const Span span(timeline, Category::optimizer, "zero gradients");
      optimizer.zero_grad();
    }
    if (session.rank() == pace.delayed_rank && pace.delay_ms > 0) {
      const Span span(timeline, Category::data, "data");
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pace.delay_ms));
    }
    torch::Tensor loss;
    {
      const Span span(timeline, Category::forward, "forward");
      loss = model->loss(model->forward(what.x), what.y);
    }
    {
      const Span span(timeline, Category::backward, "backward");
      loss.backward();
    }
    optimizer.step();
  }
  session.set_step(-1);
  if (session.rank() == 0) write_facts(session, pace, what.x.size(0));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_session("paced_training", argc, argv,
                     [&](Session& session) { return train(session, parse(argc, argv)); });
}
