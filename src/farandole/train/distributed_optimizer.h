// Any torch::optim optimizer over gradients that are reduced over all ranks while backward runs. Used by the
// training thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/session.h"

namespace farandole {

class Compressor;

// The weights of all Embedding and EmbeddingBag modules made with sparse(true), by their names in
// named_parameters(): for DistributedOptimizerOptions::sparse_parameters.
std::vector<std::string> sparse_parameters(const torch::nn::Module& module);

// Parameters, reduced gradients and optimizer state are views of flat buckets. SGD, Adam and AdamW update
// whole buckets with LibTorch's fused kernels, equal to their own step() but for rounding, each as soon as it
// is reduced; any other optimizer, types other than float32 and float64, and steps with a closure go through
// the optimizer's own step(). A parameter that got a gradient on some ranks only takes part with zeros on the
// others; one that got none on any rank keeps an undefined gradient and is left alone, as in one process.
class DistributedOptimizer {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

  // Collective: throws UserError on all ranks where they do not train the same tensors. `session` and
  // `optimizer` outlive this. The parameters get new memory, with the values that they have.
  DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                       const NamedParameters& parameters, DistributedOptimizerOptions options = {});
  ~DistributedOptimizer();

  // Gradients become undefined. Collective after the first step, when buckets are planned again by the order
  // in which gradients came, and where backward ran without a step(): gradients to be thrown away are thrown
  // away on all ranks.
  void zero_grad();
  // Waits for the reduction, clips, updates. With a closure (LBFGS): reduces after each of its evaluations.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  // The first half of step(): afterwards all ranks hold the same gradients, clipped, which may be changed
  // before step(). Without this call, step() can update a bucket while others are still being reduced.
  void synchronize();

  // Where ranks synchronize parameters, these become equal to their average over ranks; else nothing is to
  // do. Collective.
  void average_parameters();
  // The same for the optimizer's state, so that one rank's is what all go on from: before a checkpoint.
  void average_state();

  // What DistributedOptimizerOptions::tune found, once it has; the same on all ranks.
  std::optional<TunedPlan> tuned() const;

  double gradient_norm() const;        // before clipping, of the last step; NaN without clip_norm
  std::size_t gradient_bytes() const;  // of all buckets, without sparse ones
  // Copied into buckets since the start: autograd gives a gradient memory of its own.
  std::size_t packed_bytes() const;
  // That this rank gave to collectives since the start, of gradients or parameters.
  std::size_t sent_bytes() const;
  Compressor& compressor();  // not between backward and step()
  torch::optim::Optimizer& inner();

 private:
  friend class Join;
  void join(bool divide_by_all);
  std::size_t shadow();  // returns the steps of others that it took part in

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace farandole
