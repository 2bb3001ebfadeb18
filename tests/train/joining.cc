// A training whose ranks have different numbers of batches: rank r has 4 + 3 r. Its argument selects the
// error: "throw" (rank 1 fails in its sixth step, after rank 0 has joined), "together" (the same, but the
// active ranks agree on the error), or none.
#include <farandole/farandole.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/torch_program.h"

int joining(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  return farandole::run_session("joining", argc, argv, [&](farandole::Session& session) {
    torch::manual_seed(1);
    auto net = torch::nn::Linear(4, 2);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
    farandole::Join join(session, {&optimizer});
    for (int step = 0; step < 4 + 3 * session.rank(); ++step) {
      optimizer.zero_grad();
      net->forward(torch::ones({3, 4})).pow(2).mean().backward();
      const auto check = [&] {
        if (step == 5 && session.rank() == 1) throw farandole::CorruptInput("the sixth batch is damaged");
      };
      if (how == "throw") check();
      if (how == "together") session.together(check);
      optimizer.step();
    }
    const int last = join.finish();
    if (session.rank() == 0) std::cout << "rank " << last << " was last\n";
    return 0;
  });
}
