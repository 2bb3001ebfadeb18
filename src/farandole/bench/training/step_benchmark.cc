#include "farandole/bench/training/step_benchmark.h"

#include "farandole/bench/training/benchmark_trainee.h"

namespace farandole {
namespace {

constexpr int turn_steps = 5;

}  // namespace

StepResult benchmark_step(Session& session, const std::string& model, const StepBenchmarkOptions& options) {
  torch::manual_seed(1);
  std::unique_ptr<Group> own;
  for (int r = 0; r < session.size(); ++r)
    if (auto group = session.new_group({r}); group != nullptr) own = std::move(group);
  auto by_itself = options.optimizer;
  by_itself.group = own.get();
  BenchmarkTrainee together(session, model, options.optimizer), alone(session, model, by_itself);
  StepResult result{model, session.size(), {}, {}, together.gradient_bytes(), 0};
  together.steps(options.warmup);
  alone.steps(options.warmup);
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
