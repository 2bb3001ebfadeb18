// A program of a user's own, which uses only a session and an optimizer, and saves checkpoints of its own.
// Until FOLDER/stop exists, it trains without numbers of steps. With `numbered`, it trains 20 steps with
// numbers, rank 1 kills itself in step 8 of the first start, and the next one continues from the checkpoint.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include "train/torch_program.h"

#include "farandole/farandole.h"

namespace {

struct Program {
  farandole::Session& session;
  std::string folder;
  torch::nn::Linear net{nullptr};
  torch::optim::SGD sgd;
  farandole::DistributedOptimizer optimizer;

  Program(farandole::Session& the_session, std::string the_folder)
      : session(the_session),
        folder(std::move(the_folder)),
        net(torch::nn::LinearOptions(8, 1)),
        sgd(net->parameters(), 0.01),
        optimizer(session, sgd, net->named_parameters()) {
    session.broadcast(*net);
  }

  void step() {
    optimizer.zero_grad();
    net->forward(torch::ones({4, 8})).pow(2).mean().backward();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    optimizer.step();
  }

  void save(std::int64_t step) {
    if (session.rank() != 0) return;
    const farandole::Span span(session.timeline(), farandole::Category::checkpoint, "save");
    torch::save(net, folder + "/model.pt");
    std::ofstream(folder + "/position") << step;
  }

  void train_until_stopped() {
    for (std::int64_t step = 0;; ++step) {
      this->step();
      if (step % 10 == 0) save(step);
      const auto stop = torch::full({}, std::filesystem::exists(folder + "/stop") ? 1.0 : 0.0);
      if (session.allreduce(stop).item<double>() > 0) return;
    }
  }

  void train_numbered() {
    std::int64_t step = 0;
    std::ifstream(folder + "/position") >> step;
    const bool again = std::getenv("FARANDOLE_RESTARTS") != nullptr;
    for (; step < 20; ++step) {
      session.set_step(step);
      if (step == 8 && session.rank() == 1 && !again) std::raise(SIGKILL);
      this->step();
      if ((step + 1) % 5 == 0) save(step + 1);
    }
  }
};

}  // namespace

int bare_program(int argc, char** argv) {
  farandole::Session session(argc, argv);
  Program program(session, argv[1]);
  argc > 2 ? program.train_numbered() : program.train_until_stopped();
  return 0;
}
