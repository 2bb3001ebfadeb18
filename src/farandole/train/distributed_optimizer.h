// Any torch::optim optimizer over gradients that are reduced over all ranks while backward runs.
// Thread safety: call from the training thread only.
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

// Parameters, reduced gradients and optimizer state are views of flat buckets. SGD, Adam and AdamW update a
// whole bucket with LibTorch's fused kernels as soon as it is reduced; the result equals their own step() but
// for rounding. Any other optimizer, types other than float32 and float64, and steps with a closure use the
// optimizer's own step(). A parameter that got a gradient on some ranks only takes part with zeros on the
// others. A parameter that got no gradient on any rank keeps an undefined gradient and is not updated, as in
// one process.
class DistributedOptimizer {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

  // The parameters get new memory, with the values that they have. `session` and `optimizer` outlive this.
  // Collective: every rank of the group must call this in the same order.
  // Throws: UserError on all ranks where they do not train the same tensors, and for options that do not go
  // together.
  DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                       const NamedParameters& parameters, DistributedOptimizerOptions options = {});
  ~DistributedOptimizer();

  // Gradients become undefined. After the first step this plans the buckets again, by the order in which
  // gradients came. Gradients that are thrown away must be thrown away on all ranks.
  // Collective: every rank of the group must call this in the same order.
  void zero_grad();
  // Waits for the reduction, clips, updates. With a closure (LBFGS): reduces after each of its evaluations,
  // and returns the loss.
  // Collective: every rank of the group must call this in the same order.
  // Throws: UserError on all ranks where the ranks' gradients do not fit; Error with ExitCode::peer_lost where
  // another rank was lost.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  // The first half of step(): afterwards all ranks hold the same gradients, clipped, which may be changed
  // before step(). Without this call, step() can update a bucket while others are still being reduced.
  void synchronize();

  // Where ranks synchronize parameters, the parameters become equal to their average over ranks; else it does
  // nothing.
  // Collective: every rank of the group must call this in the same order.
  void average_parameters();
  // The same for the optimizer's state. Call it before a checkpoint, which has the state of one rank.
  // Collective: every rank of the group must call this in the same order.
  void average_state();

  // What DistributedOptimizerOptions::tune found; none while the search goes on. The same on all ranks.
  std::optional<TunedPlan> tuned() const;

  double gradient_norm() const;        // before clipping, of the last step; NaN without clip_norm
  std::size_t gradient_bytes() const;  // memory of all buckets, without sparse gradients
  // Bytes copied into buckets since the start, because autograd put a gradient in memory of its own.
  std::size_t packed_bytes() const;
  // Bytes that this rank gave to collectives since the start, of gradients or parameters.
  std::size_t sent_bytes() const;
  Compressor& compressor();  // for Farandole's checkpoints; not between backward and step()
  torch::optim::Optimizer& inner();

 private:
  friend class Join;
  void join(bool divide_by_all);
  std::size_t shadow();  // returns the number of the others' steps that it took part in

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace farandole
