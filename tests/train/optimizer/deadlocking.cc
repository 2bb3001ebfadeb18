// A training with a mistake: "batches" (rank 1 has 12 batches, the others 20), "validation" (rank 0 validates
// alone after 12 steps), "compressed" (as batches; a thread reduces the gradients) or "joined" (as batches,
// with a Join, which is right).
#include <farandole/farandole.h>
#include <optional>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include "train/torch_program.h"

int deadlocking(int argc, char** argv) {
  const std::string mistake = argc > 1 ? argv[1] : "";
  farandole::Session session(argc, argv);
  torch::manual_seed(1);
  auto net = torch::nn::Linear(4, 2);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  farandole::DistributedOptimizerOptions options;
  if (mistake == "compressed") options.compression.kind = farandole::Compression::Kind::bfloat16;
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters(), options);
  std::optional<farandole::Join> join;
  if (mistake == "joined") join.emplace(session, std::vector{&optimizer});
  for (int step = 0; step < (mistake != "validation" && session.rank() == 1 ? 12 : 20); ++step) {
    optimizer.zero_grad();
    net->forward(torch::ones({3, 4})).pow(2).mean().backward();
    optimizer.step();
    if (mistake == "validation" && step == 11 && session.rank() == 0) session.allreduce(torch::ones({1}));
  }
  return 0;
}
