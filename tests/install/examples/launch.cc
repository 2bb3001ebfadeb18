// One function, from a single process to many ranks: `launch NP` trains on NP ranks and evaluates afterwards.
#include <cstdlib>
#include <farandole/farandole.h>
#include <iostream>

namespace {

// Points in two dimensions; the class says whether a point is inside the unit circle.
struct Points {
  explicit Points(std::int64_t n) : x(torch::randn({n, 2})), y((x.norm(2, 1) < 1).to(torch::kInt64)) {}
  torch::Tensor x, y;
};

int train(farandole::Session& session, const std::vector<std::string>&) {
  torch::manual_seed(1);  // the same data on every rank
  const Points points(4096), test(1000);
  auto net = torch::nn::Sequential(torch::nn::Linear(2, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  net->to(session.device());

  farandole::DistributedSampler sampler(points.x.size(0), session);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05 * session.size()).momentum(0.9));
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  session.broadcast(*net);
  for (int epoch = 0; epoch < 5; ++epoch) {
    sampler.set_epoch(epoch);
    for (const auto& batch : torch::tensor(sampler.indices()).split(64)) {
      optimizer.zero_grad();
      const auto output = net->forward(points.x.index({batch}).to(session.device()));
      torch::cross_entropy_loss(output, points.y.index({batch}).to(session.device())).backward();
      optimizer.step();
    }
  }

  // Every rank evaluates its share of the test data, and the counts are added.
  const torch::NoGradGuard no_grad;
  const auto share = torch::arange(session.rank(), test.x.size(0), session.size());
  const auto answer = net->forward(test.x.index({share}).to(session.device())).argmax(1);
  auto correct = (answer.cpu() == test.y.index({share})).sum();
  session.allreduce_(correct, farandole::ReduceOp::sum);
  if (session.rank() == 0)
    std::cout << "accuracy on " << session.size()
              << " ranks: " << 100.0 * correct.item<double>() / static_cast<double>(test.x.size(0)) << " %\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::launch(argc, argv, {.np = argc > 1 ? std::atoi(argv[1]) : 1}, train);
}
