#include "farandole/train/step_benchmark.h"

#include <functional>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/models/model.h"

namespace farandole {
namespace {

constexpr int turn_steps = 5;

struct Workload {
  ModelOptions model;
  DataShape data;
  Batch batch;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)> optimizer;
};

Workload workload(const std::string& name) {
  using namespace torch::optim;
  const auto sgd = [](double momentum) {
    return [momentum](std::vector<torch::Tensor> parameters) -> std::unique_ptr<Optimizer> {
      return std::make_unique<SGD>(parameters, SGDOptions(0.01).momentum(momentum));
    };
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
            [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<Optimizer> {
              return std::make_unique<AdamW>(parameters, AdamWOptions(5e-4).weight_decay(0.1));
            }};
  if (name == "mnist")
    return {{.name = "mnist"},
            {{1, 28, 28}, 10, false},
            {torch::randn({64, 1, 28, 28}), torch::randint(10, {64}, torch::kInt64)},
            sgd(0.5)};
  throw UserError("no benchmark trains '" + name + "'; there are mlp, gpt and mnist");
}

class Trainee {
 public:
  Trainee(Session& session, const Workload& workload, const DistributedOptimizerOptions& options)
      : batch_(workload.batch),
        model_(make_model(workload.model, workload.data)),
        inner_(workload.optimizer(model_->parameters())),
        optimizer_(session, *inner_, model_->named_parameters(), options) {}

  void steps(int count, Sample* sample) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t start = now_ns();
      optimizer_.zero_grad();
      model_->loss(model_->forward(batch_.x), batch_.y).backward();
      optimizer_.step();
      if (sample != nullptr) sample->us.push_back(static_cast<double>(now_ns() - start) * 1e-3);
      ++steps_;
    }
  }

  std::size_t gradient_bytes() const { return optimizer_.gradient_bytes(); }
  std::size_t packed_bytes_a_step() const { return optimizer_.packed_bytes() / steps_; }

 private:
  Batch batch_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  std::size_t steps_ = 0;
};

}  // namespace

StepResult benchmark_step(Session& session, const std::string& model, const StepBenchmarkOptions& options) {
  torch::manual_seed(1);
  const auto what = workload(model);
  std::unique_ptr<Group> own;
  for (int r = 0; r < session.size(); ++r)
    if (auto group = session.new_group({r}); group != nullptr) own = std::move(group);
  auto by_itself = options.optimizer;
  by_itself.group = own.get();
  Trainee together(session, what, options.optimizer), alone(session, what, by_itself);
  StepResult result{model, session.size(), {}, {}, together.gradient_bytes(), 0};
  together.steps(options.warmup, nullptr);
  alone.steps(options.warmup, nullptr);
  for (int done = 0; done < options.steps; done += turn_steps) {
    const int count = std::min(turn_steps, options.steps - done);
    session.barrier();
    together.steps(count, &result.step);
    session.barrier();
    alone.steps(count, &result.step_without_communication);
  }
  result.packed_bytes = together.packed_bytes_a_step();
  return result;
}

}  // namespace farandole
