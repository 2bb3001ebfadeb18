// model_step ROWS STEPS FILE...: the load time of model files and the median time of their training steps, in
// one line of JSON for each file. The files are of the same model. The first is of torch.export; its inputs
// are those of all. The steps alternate.
#include <algorithm>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <torch/optim.h>
#include <torch/utils.h>
#include <vector>

#include "train/torch_program.h"

#include "farandole/base/clock.h"
#include "farandole/estimator/models/exported_model.h"

namespace {

struct Rival {
  std::string file;
  double load_ms;
  std::unique_ptr<farandole::ModelProgram> model;
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::vector<double> step_ms;
};

}  // namespace

int model_step(int argc, char** argv) {
  using namespace farandole;
  const auto rows = std::stoll(argv[1]), steps = std::stoll(argv[2]);
  std::vector<Rival> rivals;
  for (int i = 3; i < argc; ++i) {
    const std::string file = argv[i];
    const bool exported = file.ends_with(".pt2");
    const auto begin = now_ns();
    auto model = load_model(file, exported ? file.substr(0, file.size() - 4) + "-eval.pt2" : "", torch::kCPU);
    const auto load_ms = 1e3 * seconds_since(begin);
    model->train(true);
    auto optimizer =
        std::make_unique<torch::optim::SGD>(model->trained_parameters(), torch::optim::SGDOptions(1e-3));
    rivals.push_back({file, load_ms, std::move(model), std::move(optimizer), {}});
  }
  ExportedProgram program;
  visit_exported_programs(argv[3], [&](const ExportedProgram& only) { program = only; });
  std::vector<torch::Tensor> inputs;
  for (const auto* const input : program.user_inputs()) {
    std::vector<std::int64_t> sizes;
    for (const auto& size : input->meta->sizes) sizes.push_back(sizes.empty() ? rows : size.value);
    inputs.push_back(c10::isFloatingType(input->meta->dtype) ? torch::randn(sizes)
                                                             : torch::randint(0, 7, sizes, torch::kInt64));
  }
  for (std::int64_t step = 0; step < steps; ++step)
    for (auto& [file, load_ms, model, optimizer, step_ms] : rivals) {
      const auto begin = now_ns();
      optimizer->zero_grad();
      torch::Tensor loss;
      for (const auto& output : model->forward(inputs, program.outputs.size()))
        loss = loss.defined() ? loss + output.mean() : output.mean();
      loss.backward();
      optimizer->step();
      step_ms.push_back(1e3 * seconds_since(begin));
    }
  for (auto& rival : rivals) {
    const auto middle = rival.step_ms.begin() + static_cast<std::ptrdiff_t>(rival.step_ms.size() / 2);
    std::nth_element(rival.step_ms.begin(), middle, rival.step_ms.end());
    fmt::print("{{\"file\": \"{}\", \"load_ms\": {:.1f}, \"step_ms\": {:.4f}}}\n", rival.file, rival.load_ms,
               *middle);
  }
  return 0;
}
