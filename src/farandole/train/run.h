// What surrounds the steps of a training: run.json, metrics.jsonl, checkpoints, and the end of the
// job. The program keeps its loop; `farandole status`, `analyze` and `doctor` then know it as they
// know `farandole train`.
//
//   farandole::Run run(session);
//   run.track(*net, sgd, sampler);
//   run.resume();
//   for (; run.epoch() < 10; run.next_epoch()) {
//     for (auto& batch : *loader) {
//       ...
//       optimizer.step();
//       if (!run.step({{"loss", loss}})) return run.finish();
//     }
//     if (!run.evaluate([&] { return farandole::Values{{"loss", held_out_loss(*net)}}; })) break;
//   }
//   return run.finish();
//
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/train/distributed_sampler.h"
#include "farandole/train/session.h"

namespace farandole {

class DistributedOptimizer;

struct RunOptions {
  // Used if FARANDOLE_RUN_DIR is not set, which `farandole run --run-dir` does. Then the Run begins to
  // record, so make it before optimizers and groups.
  std::filesystem::path run_dir{};
  // Samples of a step, of all ranks together. Not needed if a data loader uses the tracked sampler: its batch
  // size times the ranks is known, and must fit.
  std::int64_t global_batch = 0;
  // Of the whole training, for `farandole status`; 0: unknown.
  std::int64_t total_steps = 0;
  // As --checkpoint-every of `farandole train`: for example 500steps, 2epochs, auto or never.
  std::string checkpoint_every = "10min";
  // Checkpoints that stay; the best one does, too.
  int keep = 3;
  // Steps from one line of metrics to the next, which has their means.
  std::int64_t log_every = 10;
  // "min loss" or "max accuracy": the value of evaluate() that decides which checkpoint is the best. If this
  // is empty, "loss" decides, or else "accuracy".
  std::string best{};
  // Evaluations in a row without a better value that end the training; 0: no number.
  int patience = 0;
  // Seconds before the wall time of the job ends at which it saves and stops.
  std::optional<double> stop_before{};
  // The program's own settings as a JSON object, for run.json and checkpoints.
  std::string config{};
  // Also writes the metrics to RUN/tensorboard.
  bool tensorboard = false;
  // Also writes them to this folder, for the textfile collector of Prometheus's node exporter.
  std::filesystem::path prometheus{};
  // Floating-point operations that the model needs in a step, forward and backward, on all ranks together,
  // for TFLOP/s and MFU; 0: counted from LibTorch's operators in the first whole step.
  double model_flops = 0;
  // The most that one device can do, in 10^12 operations per second; 0: from a table of known cards.
  double peak_tflops = 0;
};

// A number of this rank, such as a loss. A tensor must have one element; it is read when a line is written,
// so that a GPU need not be waited for.
class Value {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Value(T number) : number_(static_cast<double>(number)) {}
  Value(const torch::Tensor& tensor) : tensor_(tensor.detach()) {}

  const torch::Tensor& tensor() const { return tensor_; }  // undefined for a number
  double number() const { return tensor_.defined() ? tensor_.item<double>() : number_; }

 private:
  double number_ = 0;
  torch::Tensor tensor_;
};
using Values = std::vector<std::pair<std::string, Value>>;

class Run {
 public:
  // Opens the run directory and keeps other jobs from writing into it. From now on, SIGTERM, SIGINT and
  // SIGUSR1 do not end this process but are requests to stop. `session` must outlive this object.
  // Throws: UserError on all ranks for wrong options, without a run directory, if it cannot be written, or if
  // another job writes into it.
  // Collective: every rank of the job must call this in the same order.
  explicit Run(Session& session, RunOptions options = {});
  // Without finish(), the steps after the last checkpoint are lost, and a warning says so.
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // What checkpoints hold. Track everything before resume(); it must outlive this object. An optimizer may be
  // a torch::optim one, also if a DistributedOptimizer uses it. Its parameters must be those of tracked
  // modules. Only one sampler can be tracked; it continues within an epoch, on any number of ranks.
  template <class First, class... More>
  requires(!std::is_convertible_v<First&, std::string>) void track(First& first, More&... more) {
    add(first);
    (add(more), ...);
  }
  // More modules need names, which come before those of their parameters ("critic.fc.weight"). Tensors and
  // numbers are values of the program that are the same on all ranks, such as an average of weights.
  void track(const std::string& name, torch::nn::Module& module);
  void track(const std::string& name, torch::Tensor& tensor);
  void track(const std::string& name, double& value);
  void track(const std::string& name, std::int64_t& value);

  // Continues from the newest checkpoint of the run directory that can be verified and has no NaN, on any
  // number of ranks. Returns false if there is none, so that this is a new run. With the same number of
  // ranks, the training continues bit by bit as if it had not been interrupted: parameters, buffers,
  // optimizer, sampler and LibTorch's random generators of each rank are restored.
  // Throws: CorruptInput on all ranks if no checkpoint is usable; UserError if it is of another
  // model or data.
  // Collective: every rank of the job must call this in the same order.
  bool resume();

  std::int64_t epoch() const;  // Epochs that are over.
  std::int64_t steps() const;  // Steps that are done.
  // Steps of this epoch that are done: for programs that track no sampler and leave out batches themselves.
  std::int64_t steps_in_epoch() const;

  // Ends a step, after the optimizer's. Writes a line of metrics with the means over ranks and steps if one
  // is due, saves a checkpoint if one is due, and learns whether any rank was asked to stop. Returns false if
  // the job is to stop: the state is saved, and the program should return finish() at once.
  // The names of the values must be the same on all ranks. If the loss is not finite, this throws.
  // Throws: Error on all ranks if the last checkpoint could not be written, or if "loss" is not finite.
  // Collective: every rank of the job must call this in the same order.
  [[nodiscard]] bool step(const Values& values = {});

  // Ends an evaluation: writes the means over the ranks to metrics.jsonl as eval_NAME. Saves a checkpoint if
  // the deciding value is better than ever. Returns false if the training should end: after `patience`
  // evaluations without a better value, or because any rank was asked to stop.
  // Throws: UserError if RunOptions::best names a value that is not there.
  // Collective: every rank of the job must call this in the same order.
  [[nodiscard]] bool evaluate(const Values& values);
  // The same with what `work` returns. Before, all ranks get rank 0's buffers, such as the running statistics
  // of batch normalization, so that all evaluate the same model. The timeline has the time as evaluation.
  [[nodiscard]] bool evaluate(const std::function<Values()>& work);

  // Ends an epoch. The sampler begins the next one.
  // Collective: every rank of the job must call this in the same order.
  void next_epoch();

  bool stopping() const;  // True on all ranks if the job is to stop.
  // Saves what is not saved yet, waits until the checkpoint is on disk, and writes to run.json how the run
  // has ended. Returns the exit code of the program: 0, or 75 if the job was asked to stop. Then the same
  // command continues it.
  // Throws: Error on all ranks if the checkpoint could not be written.
  // Collective: every rank of the job must call this in the same order.
  int finish();

 private:
  void add(torch::nn::Module& module);
  void add(torch::optim::Optimizer& optimizer);
  void add(DistributedOptimizer& optimizer);
  void add(DistributedSampler& sampler);
  template <class M>
  void add(torch::nn::ModuleHolder<M>& holder) {
    add(static_cast<torch::nn::Module&>(*holder));
  }

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace farandole
