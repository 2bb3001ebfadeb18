// The recipe of Horovod in C++: every rank does these steps. Start it with `farandole run -n 2 -- recipe`.
#include <farandole/farandole.h>
#include <iostream>

int main(int argc, char** argv) {
  // 1. Initialize. The session knows this rank, and the number of ranks.
  farandole::Session session(argc, argv);
  // 2. Pin each rank to a device of its own.
  const auto device = session.device();

  torch::manual_seed(7);
  const auto x = torch::randn({2000, 16});
  const auto y = (x.sum(1) > 0).to(torch::kInt64);
  auto net = torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  net->to(device);

  // 3. Partition the samples among the ranks.
  farandole::DistributedSampler sampler(x.size(0), session,
                                        {.shuffle = true, .drop_last = false, .seed = 42});
  // 4. Scale the learning rate by the number of ranks.
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.02 * session.size()).momentum(0.5));
  // 5. Wrap the optimizer: it averages gradients over the ranks.
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  // 6. Begin on all ranks with rank 0's parameters and optimizer state.
  session.broadcast(*net);
  session.broadcast(sgd);

  for (int epoch = 0; epoch < 4; ++epoch) {
    net->train();
    sampler.set_epoch(epoch);
    torch::Tensor loss;
    for (const auto& batch : torch::tensor(sampler.indices()).split(50)) {
      optimizer.zero_grad();
      loss =
          torch::cross_entropy_loss(net->forward(x.index({batch}).to(device)), y.index({batch}).to(device));
      loss.backward();
      optimizer.step();
    }
    loss = session.allreduce(loss.detach());
    // 7. Save on rank 0 only, so that the ranks do not overwrite each other's file.
    if (session.rank() == 0) {
      torch::save(net, "recipe.pt");
      std::cout << "epoch " << epoch + 1 << " loss " << loss.item<float>() << "\n";
    }
  }
}
