// A small training for each argument, with the mistake that it names, on rank 1 if it is that of one rank.
// Each error but the last one's is printed, because one start of the ranks serves all that end in the same
// way. The session is a bare one, as in the example of README.md.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <vector>

#include "train/torch_program.h"

#include "farandole/farandole.h"

namespace {

using torch::Tensor;
using Optimizer = farandole::DistributedOptimizer;

torch::nn::Sequential new_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Linear(8, 3));
}

// What each mistake changes in a correct training.
struct Training {
  farandole::Session& session;
  torch::nn::Sequential net = new_net();
  torch::optim::SGD sgd{net->parameters(), 0.1};

  bool is_mistaken() const { return session.rank() == 1; }
  Tensor input() const { return torch::randn({5, 4}); }
  Tensor loss() { return net->forward(input()).square().mean(); }

  void train(const std::function<void(Optimizer&)>& step, int steps = 3) {
    Optimizer optimizer(session, sgd, net->named_parameters());
    session.broadcast(*net);
    for (int i = 0; i < steps; ++i) step(optimizer);
  }
  static void backward_and_step(Optimizer& optimizer, const Tensor& loss) {
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  // Rank 1 fails in its second step, while rank 0 waits for its gradients.
  void fail(const std::function<void()>& failure) {
    int step = 0;
    train([&](Optimizer& optimizer) {
      if (++step == 2 && is_mistaken()) failure();
      backward_and_step(optimizer, loss());
    });
  }
  // Rank 1 fails in its sixth step, after rank 0 has joined.
  void fail_in_join(const std::function<void(const std::function<void()>&)>& run) {
    Optimizer optimizer(session, sgd, net->named_parameters());
    session.broadcast(*net);
    farandole::Join join(session, {&optimizer});
    for (int step = 0; step < (is_mistaken() ? 7 : 4); ++step) {
      run([&] {
        if (step == 5) throw farandole::CorruptInput("the sixth batch is damaged");
      });
      backward_and_step(optimizer, loss());
    }
    join.finish();
  }
};

struct Bad {};

void lose_memory(volatile int* nothing) {
  *nothing = 1;
}

const std::map<std::string, std::function<void(Training&)>> mistakes = {
    {"nothing", [](Training& t) { t.train([&](Optimizer& o) { t.backward_and_step(o, t.loss()); }); }},
    // Errors.
    {"farandole_error",
     [](Training& t) { t.fail([] { throw farandole::CorruptInput("x.csv: line 3 is damaged"); }); }},
    {"error", [](Training& t) { t.fail([] { throw std::runtime_error("the batch has no samples"); }); }},
    {"strange_error", [](Training& t) { t.fail([] { throw Bad(); }); }},
    {"error_of_thread",
     [](Training& t) {
       t.fail([] { std::thread([] { throw std::runtime_error("the loader has failed"); }).join(); });
     }},
    {"error_of_all",
     [](Training& t) { t.train([](Optimizer&) { throw std::runtime_error("no rank can do this"); }); }},
    {"agreed_error",
     [](Training& t) {
       t.train([&](Optimizer&) {
         t.session.together([&] {
           if (t.is_mistaken()) throw farandole::UserError("the file x.csv does not exist");
         });
       });
     }},
    {"shape", [](Training& t) { t.fail([&] {
                                  t.net->forward(torch::randn({5, 7}));
                                }); }},
    {"exit", [](Training& t) { t.fail([] { std::exit(3); }); }},
    {"exit_0", [](Training& t) { t.fail([] { std::exit(0); }); }},
    {"segfault", [](Training& t) { t.fail([] { lose_memory(nullptr); }); }},
    {"early_return",
     [](Training& t) {
       if (!t.is_mistaken()) t.train([&](Optimizer& o) { t.backward_and_step(o, t.loss()); });
     }},
    // Collectives.
    {"other_call",
     [](Training& t) {
       auto value = torch::ones({4});
       t.is_mistaken() ? t.session.broadcast_(value) : t.session.allreduce_(value);
     }},
    {"error_in_join", [](Training& t) { t.fail_in_join([](const auto& check) { check(); }); }},
    {"agreed_error_in_join",
     [](Training& t) { t.fail_in_join([&](const auto& check) { t.session.together(check); }); }},
    // What went wrong silently before.
    {"no_broadcast",
     [](Training& t) {
       Optimizer optimizer(t.session, t.sgd, t.net->named_parameters());
       for (int i = 0; i < 3; ++i) t.backward_and_step(optimizer, t.loss());
     }},
    {"inner_zero_grad",
     [](Training& t) {
       t.train([&](Optimizer&) {
         t.sgd.zero_grad();
         t.loss().backward();
         t.sgd.step();
       });
     }},
    {"last_inner_step",
     [](Training& t) {
       t.train(
           [&](Optimizer&) {
             t.loss().backward();
             t.sgd.step();
           },
           1);
     }},
    {"no_step",
     [](Training& t) {
       t.train([&](Optimizer& optimizer) {
         optimizer.zero_grad();
         t.loss().backward();
       });
     }},
    {"missing_parameter",
     [](Training& t) {
       torch::optim::SGD sgd(t.net[0]->as<torch::nn::Linear>()->parameters(), 0.1);
       Optimizer(t.session, sgd, t.net->named_parameters());
     }},
    {"extra_parameter",
     [](Training& t) {
       const std::vector<Tensor> extra = {torch::zeros({3}, torch::requires_grad())};
       t.sgd.add_param_group(torch::optim::OptimizerParamGroup(extra));
       Optimizer(t.session, t.sgd, t.net->named_parameters());
     }},
    {"one_rank_changes",
     [](Training& t) {
       int step = 0;
       t.train([&](Optimizer& optimizer) {
         if (++step == 2 && t.is_mistaken()) {
           const torch::NoGradGuard no_grad;
           t.net->parameters()[3].add_(1);
         }
         t.backward_and_step(optimizer, t.loss());
       });
     }},
    {"second_backward",
     [](Training& t) {
       t.train([&](Optimizer& optimizer) {
         auto loss = t.loss();
         optimizer.zero_grad();
         loss.backward();
         loss.backward();
         optimizer.step();
       });
     }},
    {"nan",
     [](Training& t) {
       t.train([&](Optimizer& optimizer) {
         auto loss = t.loss();
         if (t.is_mistaken()) loss = loss * std::numeric_limits<float>::quiet_NaN();
         t.backward_and_step(optimizer, loss);
       });
     }},
    // What looks similar and is right.
    {"best_on_one_rank",
     [](Training& t) {
       Optimizer optimizer(t.session, t.sgd, t.net->named_parameters());
       t.session.broadcast(*t.net);
       for (int i = 0; i < 3; ++i) t.backward_and_step(optimizer, t.loss());
       const torch::NoGradGuard no_grad;
       if (t.session.rank() == 0) t.net->parameters()[3].zero_();  // to evaluate other parameters
     }},
    {"two_optimizers",
     [](Training& t) {
       auto critic = new_net();
       torch::optim::SGD critic_sgd(critic->parameters(), 0.1);
       Optimizer first(t.session, t.sgd, t.net->named_parameters());
       Optimizer second(t.session, critic_sgd, critic->named_parameters());
       t.session.broadcast(*t.net);
       t.session.broadcast(*critic);
       for (int i = 0; i < 3; ++i) {
         t.backward_and_step(second, critic->forward(t.input()).mean());
         {
           const torch::NoGradGuard no_grad;
           for (auto& parameter : critic->parameters()) parameter.clamp_(-0.5, 0.5);
         }
         first.zero_grad();
         torch::mse_loss(critic->forward(torch::cat({t.net->forward(t.input()), torch::ones({5, 1})}, 1)),
                         torch::ones({5, 3}))
             .backward();  // also gives gradients to the critic, which nothing uses
         first.step();
       }
     }},
    {"frozen_part",
     [](Training& t) {
       for (auto& parameter : t.net[0]->as<torch::nn::Linear>()->parameters())
         parameter.requires_grad_(false);
       torch::optim::SGD sgd(t.net[1]->as<torch::nn::Linear>()->parameters(), 0.1);
       Optimizer optimizer(t.session, sgd, t.net->named_parameters());
       t.session.broadcast(*t.net);
       for (int i = 0; i < 3; ++i) t.backward_and_step(optimizer, t.loss());
     }},
};

}  // namespace

int mistaken(int argc, char** argv) {
  farandole::Session session(argc, argv);
  for (int i = 1; i < argc; ++i) {
    torch::manual_seed(7 + session.rank());
    Training training{session};
    try {
      mistakes.at(argv[i])(training);
      std::cout << "rank " << session.rank() << " has ended\n";
    } catch (const std::exception& error) {
      if (i == argc - 1) throw;
      std::cout << argv[i] << ": " << error.what() << std::endl;
    }
  }
  return 0;
}
