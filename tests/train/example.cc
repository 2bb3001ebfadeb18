// The example of README.md: data-parallel training of a model of one's own.
#include <farandole/farandole.h>

int main(int argc, char** argv) {
  farandole::Session session(argc, argv);  // rank(), size(), local_rank(), device()

  torch::manual_seed(1);
  auto net = torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  const auto x = torch::randn({1024, 8});
  const auto y = x.sum(1, /*keepdim=*/true);

  farandole::DistributedSampler sampler(x.size(0), session);  // this rank's share, reshuffled each epoch
  torch::optim::SGD sgd(net->parameters(), 0.01 * session.size());
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  session.broadcast(*net);  // rank 0's parameters and buffers
  session.broadcast(sgd);   // rank 0's optimizer state

  torch::Tensor loss;
  for (int epoch = 0; epoch < 5; ++epoch) {
    sampler.set_epoch(epoch);
    for (const auto& batch : torch::tensor(sampler.indices()).split(32)) {
      optimizer.zero_grad();
      loss = torch::mse_loss(net->forward(x.index({batch})), y.index({batch}));
      loss.backward();   // gradients are reduced as they become ready
      optimizer.step();  // waits for the last of them
    }
  }
  loss = session.allreduce(loss);
  if (session.rank() == 0) std::cout << "loss " << loss.item<float>() << "\n";
}
