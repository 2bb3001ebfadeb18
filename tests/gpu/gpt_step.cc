// Times training steps of a GPT with 121 million parameters (17 layers, because its vocabulary are bytes) in
// bfloat16 on batches of 16 × 1024: with everything that `farandole train` does, against a bare loop of
// LibTorch with the same fused kernel for AdamW and one batch that is on the GPU; with snapshots; and with
// the recording of GPU activity. The kinds alternate. Prints one line of JSON.
#include <ATen/ops/_fused_adamw.h>
#include <fmt/format.h>
#include <optional>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include "gpu/speed.h"
#include "train/torch_program.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/log.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/precision.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session_internals.h"
#include "farandole/trainer/data/batch_sequence.h"
#include "farandole/trainer/models/model.h"

namespace farandole {
namespace {

struct Size {
  ModelOptions model{.name = "gpt", .layers = 17, .width = 768, .heads = 12, .context = 1024};
  std::int64_t batch = 16;
  int rounds = 6, steps = 10;
};

constexpr std::int64_t first_recorded = 1'000'000;
constexpr double rate = 1e-4, decay = 0.1;

// What both loops train.
struct Subject {
  Subject(Session& session, const Size& size) : device(session.device()) {
    torch::manual_seed(1);
    model = make_model(size.model, {{size.model.context}, 256, true});
    model->to(device);
  }
  torch::Tensor loss(const Batch& batch) {
    const Autocast autocast(Precision::bfloat16, device);
    return model->loss(model->forward(batch.x), batch.y);
  }

  const torch::Device device;
  std::shared_ptr<Model> model;
};

class BareLoop {
 public:
  BareLoop(Session& session, const Size& size)
      : subject_(session, size),
        batch_{some_bytes(session, size), some_bytes(session, size)},
        parameters_(subject_.model->parameters()) {
    for (const auto& parameter : parameters_) {
      first_.push_back(torch::zeros_like(parameter));
      second_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}, torch::dtype(torch::kFloat32).device(subject_.device)));
    }
  }

  void step() {
    for (auto& parameter : parameters_) parameter.mutable_grad() = torch::Tensor();
    subject_.loss(batch_).backward();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
    for (auto& count : steps_) count += 1;
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, rate, 0.9, 0.999, decay, 1e-8,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

 private:
  static torch::Tensor some_bytes(Session& session, const Size& size) {
    return torch::randint(256, {size.batch, size.model.context}, torch::kInt64).to(session.device());
  }

  Subject subject_;
  const Batch batch_;
  std::vector<torch::Tensor> parameters_, first_, second_, steps_;
};

class OwnLoop {
 public:
  OwnLoop(Session& session, const Size& size, const std::filesystem::path& folder)
      : session_(session),
        subject_(session, size),
        inner_(subject_.model->parameters(), torch::optim::AdamWOptions(rate).weight_decay(decay)),
        optimizer_(session, inner_, subject_.model->named_parameters()),
        data_(open_data({.path = "synthetic",
                         .context = size.model.context,
                         .synthetic_samples = 10 * size.batch * size.steps * size.rounds,  // for all steps
                         .as_text = true})),
        input_(session.device()),
        batches_(*data_.train, DistributedSampler(data_.train->size(), session), size.batch, input_,
                 session.timeline()),
        store_({folder / "checkpoints", 1}, session.timeline()) {
    if (const auto& gpu = session.internals().gpu) copies_.emplace(*gpu, session.device());
  }

  void step() {
    auto& timeline = session_.timeline();
    session_.set_step(next_step++);
    const Span whole(timeline, Category::step, "step");
    optimizer_.zero_grad();
    const auto batch = batches_.next().batch;
    torch::Tensor loss;
    {
      const Span span(timeline, Category::forward, "forward");
      loss = subject_.loss(batch);
    }
    {
      const Span span(timeline, Category::backward, "backward");
      loss.backward();
    }
    if (input_.copies()) batches_.prefetch();
    if (copies_) copies_->hold();
    optimizer_.step();
    ++steps_;
  }

  void snapshot() {
    optimizer_.confirm();
    auto builder = store_.builder();
    capture(session_, {*subject_.model, inner_}, {.step = next_step}, builder, copies_ ? &*copies_ : nullptr);
    auto complete = copies_ ? copies_->start() : std::function<void()>();
    store_.save(builder.finish(), std::move(complete));
  }
  void await_checkpoint() { store_.wait(); }

  std::size_t packed_bytes() const { return optimizer_.packed_bytes() / steps_; }
  // Of these, those of matrices. LibTorch computes the gradients of LayerNorm in memory of its own.
  std::int64_t packed_of_matrices() const {
    auto bytes = static_cast<std::int64_t>(packed_bytes());
    for (const auto& module : subject_.model->modules())
      if (module->as<torch::nn::LayerNormImpl>() != nullptr)
        for (const auto& own : module->parameters(/*recurse=*/false))
          bytes -= own.numel() * own.element_size();
    return bytes;
  }
  std::int64_t parameters() const {
    std::int64_t count = 0;
    for (const auto& parameter : subject_.model->parameters()) count += parameter.numel();
    return count;
  }

  std::int64_t next_step = 0;

 private:
  Session& session_;
  Subject subject_;
  torch::optim::AdamW inner_;
  DistributedOptimizer optimizer_;
  const DataSplit data_;
  DeviceInput input_;
  BatchSequence batches_;
  std::optional<DeviceCopies> copies_;
  CheckpointStore store_;
  std::size_t steps_ = 0;
};

// Milliseconds of a step; the GPU has nothing to do before and after the steps.
template <class Step>
double time_steps(Session& session, int steps, Step step) {
  const auto& gpu = session.internals().gpu;
  const auto wait = [&] {
    if (gpu) seconds_of(gpu->runtime, gpu->current_stream(), [] {});
  };
  wait();
  const auto start = now_ns();
  for (int i = 0; i < steps; ++i) step(i);
  wait();
  return seconds_since(start) * 1e3 / steps;
}

int measure(Session& session, const Size& size) {
  const TemporaryFolder folder;
  session.start_recording(
      {.run_dir = folder / "run", .gpu_activity = {{first_recorded, first_recorded * 2}}});
  BareLoop bare(session, size);
  OwnLoop own(session, size, folder.path());
  const auto steps = [&](auto& loop) { return time_steps(session, size.steps, [&](int) { loop.step(); }); };
  steps(bare), steps(own), own.snapshot(), own.await_checkpoint();  // memory and kernels
  std::vector<double> of_bare, of_own, with_snapshot, without, recorded, not_recorded;
  for (int round = 0; round < size.rounds; ++round) {
    of_bare.push_back(steps(bare));
    of_own.push_back(steps(own));
  }
  for (int round = 0; round < size.rounds; ++round) {
    without.push_back(steps(own));
    with_snapshot.push_back(time_steps(session, size.steps, [&](int i) {
      own.step();
      if (i == 0) own.snapshot();
    }));
    own.await_checkpoint();
  }
  const auto packed = own.packed_bytes();
  const auto packed_of_matrices = own.packed_of_matrices();
  for (int round = 0; round < size.rounds; ++round) {
    own.next_step = 1000 * (round + 1);
    steps(own);  // the start and the end of the recording are not a part of a step
    not_recorded.push_back(steps(own));
    own.next_step = first_recorded + 1000 * round;
    steps(own);
    recorded.push_back(steps(own));
  }
  const auto ratio = [](const std::vector<double>& a, const std::vector<double>& b) {
    return median(a) / median(b);
  };
  nlohmann::json json = {{"parameters", own.parameters()},
                         {"bare_ms", median(of_bare)},
                         {"own_ms", median(of_own)},
                         {"own_to_bare", ratio(of_own, of_bare)},
                         {"packed_bytes", packed},
                         {"packed_of_matrices", packed_of_matrices},
                         {"snapshot_to_none", ratio(with_snapshot, without)}};
  if (session.no_gpu_activity().empty())
    json["recorded_to_not"] = ratio(recorded, not_recorded);
  else
    json["not_recorded_because"] = session.no_gpu_activity();
  session.publish_timeline();  // while its folder exists
  fmt::print("{}\n", json.dump());
  return 0;
}

}  // namespace
}  // namespace farandole

// --small: a small model on the CPU, to try the program.
int gpt_step(int argc, char** argv) {
  using namespace farandole;
  const bool small = argc > 1 && std::string_view(argv[1]) == "--small";
  return run_session(
      "gpt_step", argc, argv,
      [&](Session& session) {
        if (!small) session.use_device("cuda");
        Size size;
        if (small) size = {{.name = "gpt", .layers = 2, .width = 32, .heads = 2, .context = 16}, 2, 2, 2};
        return measure(session, size);
      },
      RecordFrom::start_recording);
}
