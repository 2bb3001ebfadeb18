// A training as users write it, with the public headers only: tests kill it, stop it, continue it on other
// ranks and let it make mistakes. Settings are KEY=VALUE.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <farandole/farandole.h>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "train/torch_program.h"

namespace {

using torch::Tensor;

// The target of a sample is its value, and its number.
struct Numbered : torch::data::datasets::Dataset<Numbered> {
  explicit Numbered(std::int64_t size) : x(torch::randn({size, 8})), y(x.sum(1)) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {x[i], torch::stack({y[i], torch::tensor(static_cast<float>(i))})};
  }
  std::optional<std::size_t> size() const override { return x.size(0); }
  Tensor x, y;
};

// Equal only if all bits are.
std::uint64_t bits_of(torch::nn::Module& net) {
  std::uint64_t sum = 0;
  for (const auto& parameter : net.parameters())
    for (const auto* bits = reinterpret_cast<const std::uint32_t*>(parameter.data_ptr());
         bits != reinterpret_cast<const std::uint32_t*>(parameter.data_ptr()) + parameter.numel(); ++bits)
      sum = sum * 31 + *bits;
  return sum;
}

class Settings {
 public:
  Settings(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      if (equals == std::string::npos) throw std::invalid_argument(word);
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  std::string text(const std::string& key, const std::string& otherwise = "") const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  int number(const std::string& key, int otherwise) const {
    return std::stoi(text(key, std::to_string(otherwise)));
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace

int own_training(int argc, char** argv) {
  const Settings settings(argc, argv);
  farandole::Session session(argc, argv);
  torch::manual_seed(1);
  const int width = settings.number("width", 16);
  torch::nn::Sequential net(torch::nn::Linear(8, width), torch::nn::BatchNorm1d(width), torch::nn::ReLU(),
                            torch::nn::Dropout(0.2), torch::nn::Linear(width, 1));
  Numbered data(settings.number("samples", 360));
  Numbered held_out(60);
  farandole::DistributedSampler sampler(settings.number("samples", 360), session,
                                        {.seed = static_cast<std::uint64_t>(settings.number("seed", 7))});
  auto loader = torch::data::make_data_loader(
      data.map(torch::data::transforms::Stack<>()), sampler,
      torch::data::DataLoaderOptions(static_cast<std::size_t>(12 / session.size())).workers(2));
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  auto average = torch::zeros({8});

  farandole::Run run(session, {.run_dir = settings.text("run_dir"),
                               .global_batch = settings.number("global_batch", 0),
                               .total_steps = settings.number("total_steps", 0),
                               .checkpoint_every = settings.text("every", "7steps"),
                               .log_every = settings.number("log_every", 5),
                               .best = settings.text("best"),
                               .patience = settings.number("patience", 0),
                               .model_flops = 1.0 * settings.number("model_flops", 0),
                               .peak_tflops = 1.0 * settings.number("peak_tflops", 0)});
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  session.broadcast(*net);
  torch::manual_seed(100 + session.rank());  // Dropout differs between the ranks.
  run.track(net, sgd, sampler);
  run.track("average", average);
  const bool resumed = settings.text("resume", "yes") == "yes" && run.resume();
  if (run.steps_in_epoch() != run.steps() - run.epoch() * (settings.number("samples", 360) / 12))
    throw std::logic_error("the run has forgotten its steps in the epoch");
  std::ofstream seen(settings.text("seen", "/dev/null") + "." + std::to_string(::getpid()) + "." +
                     std::to_string(session.rank()));
  auto began = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  session.broadcast(began);
  seen << "start " << run.steps() << ' ' << began << std::endl;
  if (session.rank() == 0)
    std::printf("%s at step %d\n", resumed ? "continues" : "begins", static_cast<int>(run.steps()));
  std::fflush(stdout);

  const auto loss_of = [&](const Tensor& x, const Tensor& y) {
    return torch::mse_loss(net->forward(x).squeeze(1), y);
  };
  const int nan_at = settings.number("nan_at", -1);
  for (; run.epoch() < settings.number("epochs", 4); run.next_epoch()) {
    net->train();
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = loss_of(batch.data, batch.target.select(1, 0));
      loss.backward();
      optimizer.step();
      {
        const torch::NoGradGuard no_grad;
        average.mul_(0.9).add_(net[0]->as<torch::nn::Linear>()->weight.select(0, 0), 0.1);
      }
      if (run.steps() == nan_at) loss = loss * std::numeric_limits<float>::quiet_NaN();
      std::this_thread::sleep_for(std::chrono::milliseconds(settings.number("pause_ms", 0)));
      for (const auto& index : batch.target.select(1, 1).unbind())
        seen << run.epoch() << ' ' << run.steps() + 1 << ' ' << index.item<int>() << '\n';
      seen.flush();
      if (!run.step({{"loss", loss}})) return run.finish();
    }
    const auto evaluation = [&] {
      const torch::NoGradGuard no_grad;
      net->eval();
      return farandole::Values{{"loss", loss_of(held_out.x, held_out.y)}};
    };
    if (!run.evaluate(evaluation)) break;
  }
  const int code = run.finish();
  if (session.rank() == 0)
    std::printf("bits %016llx average %.9g\n", static_cast<unsigned long long>(bits_of(*net)),
                average.sum().item<double>());
  return code;
}
