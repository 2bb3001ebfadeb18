// Trains a small network to tell shapes apart, on any number of ranks: train [EPOCHS].
// Put your model into make_net() and your data into Shapes.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <farandole/farandole.h>
#include <iostream>
#include <random>

namespace {

constexpr int classes = 4, side = 28;

torch::nn::Sequential make_net() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 8, 3).stride(2)), ReLU(),
                    Conv2d(Conv2dOptions(8, 16, 3).stride(2)), ReLU(), Flatten(), Dropout(0.2),
                    Linear(16 * 6 * 6, classes));
}

// Noisy images of a disc, a square, a cross or a ring, made when they are asked for. The data loader calls
// get() in its worker threads: read and decode your samples there.
class Shapes : public torch::data::Dataset<Shapes> {
 public:
  Shapes(std::size_t size, unsigned seed) : size_(size), seed_(seed) {}

  torch::data::Example<> get(std::size_t index) override {
    std::mt19937 random(seed_ + static_cast<unsigned>(index));
    std::uniform_real_distribution<float> center(9, 19), radius(5, 8);
    std::normal_distribution<float> noise(0, 0.4f);
    const auto label = static_cast<std::int64_t>(index % classes);
    const float x0 = center(random), y0 = center(random), r = radius(random);
    auto image = torch::empty({1, side, side});
    auto pixels = image.accessor<float, 3>();
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const float dx = std::abs(x - x0), dy = std::abs(y - y0), distance = std::hypot(dx, dy);
        const bool inside[classes] = {distance < r, std::max(dx, dy) < r,
                                      std::min(dx, dy) < 2 && std::max(dx, dy) < r,
                                      distance < r && distance > r - 2};
        pixels[0][y][x] = (inside[label] ? 1.0f : 0.0f) + noise(random);
      }
    return {image, torch::tensor(label)};
  }
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
  unsigned seed_;
};

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 4;
  const std::int64_t samples = 4800, held_out_samples = 960, global_batch = 96;  // of all ranks together

  farandole::Session session(argc, argv);
  torch::manual_seed(1);
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const farandole::LearningRate rate{.base = 0.05,
                                     .scale = false,
                                     .warmup_steps = 20,
                                     .schedule = farandole::LearningRate::Schedule::cosine,
                                     .total_steps = epochs * samples / global_batch};

  // Each rank reads its share of the samples with two workers.
  const auto options =
      torch::data::DataLoaderOptions(static_cast<std::size_t>(global_batch / session.size())).workers(2);
  farandole::DistributedSampler sampler(samples, session),
      held_out_sampler(held_out_samples, session, {.shuffle = false});
  auto loader = torch::data::make_data_loader(Shapes(samples, 0).map(torch::data::transforms::Stack<>()),
                                              sampler, options);
  auto held_out = torch::data::make_data_loader(
      Shapes(held_out_samples, 1u << 20).map(torch::data::transforms::Stack<>()), held_out_sampler, options);

  farandole::Run run(session, {.run_dir = "runs/my-training",
                               .total_steps = rate.total_steps,
                               .best = "max accuracy",
                               .patience = 3});
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  session.broadcast(*net);             // rank 0's parameters and buffers
  torch::manual_seed(session.rank());  // Dropout differs between the ranks.
  run.track(net, sgd, sampler);
  run.resume();  // from the newest checkpoint of the run directory, if there is one

  for (; run.epoch() < epochs; run.next_epoch()) {
    net->train();
    for (const auto& batch : *loader) {
      for (auto& group : sgd.param_groups()) group.options().set_lr(rate.at(run.steps()));
      optimizer.zero_grad();
      torch::Tensor loss;
      {  // The spans are for `farandole analyze`.
        const farandole::Span span(session.timeline(), farandole::Category::forward, "forward");
        loss = torch::cross_entropy_loss(net->forward(batch.data), batch.target);
      }
      {
        const farandole::Span span(session.timeline(), farandole::Category::backward, "backward");
        loss.backward();
      }
      optimizer.step();
      // Returns false if the job is to stop. The state is saved then, and the same command continues.
      if (!run.step({{"loss", loss}})) return run.finish();
    }
    const auto validate = [&]() -> farandole::Values {
      const torch::NoGradGuard no_grad;
      net->eval();
      double correct = 0, count = 0;
      for (const auto& batch : *held_out) {
        correct += net->forward(batch.data).argmax(1).eq(batch.target).sum().item<double>();
        count += static_cast<double>(batch.target.size(0));
      }
      // The mean over the ranks.
      const auto accuracy = session.allreduce(torch::tensor(correct / count)).item<double>();
      if (session.rank() == 0)
        std::cout << "epoch " << run.epoch() + 1 << ": accuracy " << accuracy << std::endl;
      return {{"accuracy", accuracy}};
    };
    if (!run.evaluate(validate)) break;  // early stop, or the job is to stop
  }
  return run.finish();
}
