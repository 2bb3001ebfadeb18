#include "farandole/bench/benchmark_trainee.h"

#include <torch/optim.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {

struct BenchmarkTrainee::Workload {
  ModelOptions model;
  DataShape data;
  Batch batch;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)> optimizer;
};

BenchmarkTrainee::Workload BenchmarkTrainee::workload(const std::string& name) {
  using namespace torch::optim;
  const auto sgd = [](double momentum) {
    return [momentum](std::vector<torch::Tensor> parameters) -> std::unique_ptr<Optimizer> {
      return std::make_unique<SGD>(parameters, SGDOptions(0.01).momentum(momentum));
    };
  };
  const auto adamw = [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<AdamW>(parameters, AdamWOptions(5e-4).weight_decay(0.1));
  };
  if (name == "mlp")
    return {{.name = "mlp", .layers = 4, .width = 2048},
            {{2048}, 2048, false},
            {torch::randn({32, 2048}), torch::randint(2048, {32}, torch::kInt64)},
            sgd(0.9)};
  if (name == "gpt")
    return {{.name = "gpt", .layers = 6, .width = 384, .heads = 6, .context = 128},
            {{128}, 256, true},
            {torch::randint(256, {4, 128}, torch::kInt64), torch::randint(256, {4, 128}, torch::kInt64)},
            adamw};
  if (name == "small-mlp")
    return {{.name = "mlp", .layers = 4, .width = 1024},
            {{1024}, 1024, false},
            {torch::randn({32, 1024}), torch::randint(1024, {32}, torch::kInt64)},
            sgd(0.9)};
  if (name == "small-gpt")
    return {{.name = "gpt", .layers = 4, .width = 256, .heads = 4, .context = 64},
            {{64}, 256, true},
            {torch::randint(256, {4, 64}, torch::kInt64), torch::randint(256, {4, 64}, torch::kInt64)},
            adamw};
  if (name == "mnist")
    return {{.name = "mnist"},
            {{1, 28, 28}, 10, false},
            {torch::randn({64, 1, 28, 28}), torch::randint(10, {64}, torch::kInt64)},
            sgd(0.5)};
  throw UserError("unknown model '" + name + "'; use mlp, gpt, mnist, small-mlp or small-gpt");
}

namespace {

std::shared_ptr<Model> on_device(std::shared_ptr<Model> model, torch::Device device) {
  model->to(device);
  if (device.is_cuda()) use_channels_last(*model);
  return model;
}

}  // namespace

BenchmarkTrainee::BenchmarkTrainee(Session& session, const std::string& model,
                                   const DistributedOptimizerOptions& options,
                                   std::function<void()> wait_for_data, const std::string& optimizer)
    : BenchmarkTrainee(session, with(workload(model), optimizer), options, std::move(wait_for_data)) {}

BenchmarkTrainee::Workload BenchmarkTrainee::with(Workload workload, const std::string& optimizer) {
  if (!optimizer.empty())
    workload.optimizer = [optimizer](std::vector<torch::Tensor> parameters) {
      return make_optimizer({.name = optimizer, .lr = 5e-4}, parameters);
    };
  return workload;
}

BenchmarkTrainee::BenchmarkTrainee(Session& session, const Workload& workload,
                                   const DistributedOptimizerOptions& options,
                                   std::function<void()> wait_for_data)
    : session_(session),
      timeline_(session.timeline()),
      wait_for_data_(std::move(wait_for_data)),
      batch_{workload.batch.x.to(session.device()), workload.batch.y.to(session.device())},
      model_(on_device(make_model(workload.model, workload.data), session.device())),
      inner_(workload.optimizer(model_->parameters())),
      optimizer_(session, *inner_, model_->named_parameters(), options) {
  session.broadcast(*model_);
}

std::int64_t BenchmarkTrainee::step() {
  const Span whole(timeline_, Category::step, "step");
  {
    const Span span(timeline_, Category::optimizer, "zero gradients");
    optimizer_.zero_grad();
  }
  {
    const Span span(timeline_, Category::data, "data");
    if (wait_for_data_) wait_for_data_();
  }
  torch::Tensor loss;
  {
    const Span span(timeline_, Category::forward, "forward");
    loss = model_->loss(model_->forward(batch_.x), batch_.y);
  }
  {
    const Span span(timeline_, Category::backward, "backward");
    loss.backward();
  }
  const auto backward_end = now_ns();
  optimizer_.step();
  return backward_end;
}

void BenchmarkTrainee::check(const std::string& model) {
  workload(model);
}

void BenchmarkTrainee::capture(SnapshotBuilder& snapshot) {
  farandole::capture(session_, {*model_, *inner_}, {.step = static_cast<std::int64_t>(steps_)}, snapshot);
}

void BenchmarkTrainee::restore(const std::filesystem::path& checkpoint) {
  auto snapshot = read_checkpoint(checkpoint, memory_of(*model_));
  load_state(snapshot, {*model_, *inner_});
}

void BenchmarkTrainee::steps(int count, Sample* sample, Sample* forward_backward) {
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  const bool on_gpu = session_.device().is_cuda();
  const auto first = now_ns();
  for (int i = 0; i < count; ++i) {
    const std::int64_t start = now_ns();
    const auto backward_end = step();
    if (sample != nullptr && !on_gpu) sample->us.push_back(us(now_ns() - start));
    if (forward_backward != nullptr && !on_gpu) forward_backward->us.push_back(us(backward_end - start));
    ++steps_;
  }
  if (!on_gpu) return;
  optimizer_.confirm();
  if (sample != nullptr) sample->us.push_back(us(now_ns() - first) / count);
}

}  // namespace farandole
