// Real training, recorded in FARANDOLE_RUN_DIR. Rank 1 is slow according to FAULT: "backward" takes 200 ms
// longer in each step, "data" 100 ms; "slow" makes backward compute longer by 5 % of a step; "pause" delays
// one forward by eight seconds. With NODE, all ranks of that host are slow. In "turns" and "pause" the ranks
// are 0.2 s late in turn, so that no rank is always the last, even if the cores of the machine differ.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <farandole/farandole.h>
#include <farandole/trainer/builtin_training.h>
#include <farandole/trainer/models/classifiers.h>
#include <farandole/trainer/trainer.h>
#include <thread>
#include <torch/utils.h>

#include "train/torch_program.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

void compute_for(std::int64_t ns) {
  for (const auto end = now_ns() + ns; now_ns() < end;) {
  }
}

struct Fault {
  std::string what;
  std::int64_t steps = 0;  // of the run
  int turn = -1;           // of this rank, among so many; -1: none are taken
  int ranks = 1;

  void in_data() const {
    if (what == "data") std::this_thread::sleep_for(milliseconds(100));
  }
  void in_forward(std::int64_t step) const {
    if (what == "pause" && step == steps / 2) std::this_thread::sleep_for(milliseconds(8000));
  }
  void in_backward(std::int64_t step, std::int64_t step_ns) const {
    if (turn == step % ranks) std::this_thread::sleep_for(milliseconds(200));
    if (what == "backward") std::this_thread::sleep_for(milliseconds(200));
    if (what == "slow") compute_for(step_ns / 20);
  }
};

class SlowModel : public Model {
 public:
  SlowModel(std::shared_ptr<Model> inner, Fault fault) : inner_(std::move(inner)), fault_(std::move(fault)) {
    register_module("inner", inner_);
  }
  torch::Tensor forward(torch::Tensor x) override {
    if (inner_->is_training()) learn_step();
    if (is_training()) fault_.in_forward(step_++);
    auto output = inner_->forward(x);
    if (output.requires_grad())
      output.register_hook([this](const torch::Tensor& gradient) {
        fault_.in_backward(step_, typical_ns_);
        return gradient;
      });
    return output;
  }
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override {
    return inner_->loss(output, y);
  }

 private:
  // Median duration of the first steps, without the fault.
  void learn_step() {
    constexpr std::size_t learned = 15;
    const auto before = std::exchange(began_ns_, now_ns());
    if (before == 0 || periods_ns_.size() == learned) return;
    periods_ns_.push_back(began_ns_ - before);
    if (periods_ns_.size() < learned) return;
    std::sort(periods_ns_.begin(), periods_ns_.end());
    typical_ns_ = periods_ns_[learned / 2];
  }

  std::shared_ptr<Model> inner_;
  Fault fault_;
  std::int64_t step_ = 0, began_ns_ = 0, typical_ns_ = 0;
  std::vector<std::int64_t> periods_ns_;
};

class SlowData : public Dataset {
 public:
  SlowData(std::unique_ptr<Dataset> inner, Fault fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}
  std::int64_t size() const override { return inner_->size(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    fault_.in_data();
    return inner_->get(indices);
  }

 private:
  std::unique_ptr<Dataset> inner_;
  Fault fault_;
};

int straggle(Session& session, Fault fault, const std::string& node) {
  const bool slow = node.empty() ? session.rank() == 1 : session.node() == node;
  fault.ranks = session.size();
  if (fault.what == "turns" || fault.what == "pause") fault.turn = session.rank();
  if (!slow) fault.what = "none";
  TrainOptions options;
  options.run_dir = std::getenv("FARANDOLE_RUN_DIR");
  options.steps = fault.steps;
  options.batch = 128;  // of steps that take longer than threads to wake up
  options.checkpoint_every = "never";
  options.lr = 0.001;
  options.epochs = 1000;
  options.data.path = "synthetic";
  options.data.held_out = 0.02;
  options.data.synthetic_samples = 1024;
  auto data = open_data(options.data);
  data.train = std::make_unique<SlowData>(std::move(data.train), fault);
  torch::manual_seed(1);
  const auto model = make_model({.name = "mlp", .layers = 4, .width = 1024}, data.shape);
  BuiltInTraining training(session, options, data, std::make_shared<SlowModel>(model, fault));
  Trainer trainer(session, options, options.to_json(), training, training, [] { return false; });
  return static_cast<int>(trainer.run());
}

}  // namespace
}  // namespace farandole

int straggling(int argc, char** argv) {
  if (argc < 3 || std::getenv("FARANDOLE_RUN_DIR") == nullptr)
    return std::fputs("straggling: FAULT STEPS [NODE] or FARANDOLE_RUN_DIR are missing\n", stderr), 64;
  return farandole::run_session("straggling", argc, argv, [&](farandole::Session& session) {
    return farandole::straggle(session, {argv[1], std::atoll(argv[2])}, argc > 3 ? argv[3] : "");
  });
}
