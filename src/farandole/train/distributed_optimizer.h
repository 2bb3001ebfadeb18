// Runs any torch::optim optimizer on gradients that are reduced over all ranks while backward runs.
// Thread safety: call from the training thread only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/session.h"

namespace farandole {

class LossScaler;

// Returns the weights of all Embedding and EmbeddingBag modules with sparse(true), by their names
// in named_parameters(), for DistributedOptimizerOptions::sparse_parameters.
std::vector<std::string> sparse_parameters(const torch::nn::Module& module);

// Parameters, reduced gradients and optimizer state are views of flat buckets. SGD, Adam, AdamW and
// RMSprop update whole buckets with fused kernels as soon as a bucket is reduced; the results equal those
// of their own step() except for rounding. Other optimizers, types other than float32 and float64, and
// steps with a closure use the optimizer's own step(). If a parameter has a gradient on some ranks only,
// the other ranks contribute zeros. If it has none on any rank, its gradient stays undefined and it is not
// updated, as in a single process.
//
// With DistributedOptimizerOptions::shard, the ranks of a node keep parameters and optimizer state once, in
// memory that they share. Each rank updates its part of them in step(), which returns when all
// ranks have done so. The results are the same. For programs this means, until this object ends:
// - A program may change parameters on every rank as without sharding: clamp_(), mul_(),
// torch::load(). A rank
//   sees its own changes only. The next step makes them those of the node if all of its ranks have made the
//   same ones. If they differ, or in the third step in a row with changes, the node stops sharing them.
// - The optimizer's state can be read on every rank. Changes in place are seen by all ranks of the node at
//   once; tensors that replace those of the state must have the same values on all ranks.
// - After step(), grad() may still be this rank's own gradient. Call synchronize() before step() to see
//   that of all ranks.
//
// On GPUs, if the options require it, each rank has all parameters, but the optimizer's state only of its
// part, which it updates; then the ranks gather the parameters. Between steps, the inner optimizer has no
// state, see gather_state().
class DistributedOptimizer {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;

  // `session` and `optimizer` must outlive this object. The parameters get new memory with the same values,
  // which they keep afterwards.
  // Throws: UserError on all ranks if the ranks train different tensors, or if `optimizer` and `parameters`
  // do not have the same parameters that require gradients.
  // Collective: every rank of the group must call this in the same order.
  DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                       const NamedParameters& parameters, DistributedOptimizerOptions options = {});
  // Ends the job with ExitCode::user_error if the training has gone wrong silently: the ranks have different
  // parameters, or step() of `optimizer` was called instead of step(). Does nothing during stack unwinding.
  // Collective: every rank of the group must call this in the same order.
  ~DistributedOptimizer();

  // Makes all gradients undefined.
  // Collective: every rank of the group must call this in the same order. It communicates after the first
  // step, when buckets are planned again in the order in which gradients became ready, and if backward ran
  // without step(); in this case all ranks must discard their gradients.
  // Throws: UserError if parameters were changed since this backward, as the inner optimizer's step() does.
  void zero_grad();
  // Waits for the reduction, clips, and updates. With a closure (LBFGS), it reduces after each
  // evaluation of the closure, which returns this rank's loss; the inner optimizer sees that of all ranks.
  // Throws: NonFiniteGradient on all ranks; see DistributedOptimizerOptions::on_nonfinite. UserError on all
  // ranks in the first step if the ranks have begun with different parameters.
  // Collective: every rank of the group must call this in the same order.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  // The first half of step(). Afterwards all ranks have the same clipped gradients, which the caller may
  // change before step(). Without this call, step() can update a bucket while others are still being reduced.
  // Collective: every rank of the group must call this in the same order.
  void synchronize();

  // On a GPU, step() returns while the GPU still computes. With OnNonFinite::stop, a gradient that is not
  // finite makes the next step() throw. The GPU has then skipped the updates of both steps, from the bucket
  // of this gradient on. Call confirm() after the last step and before a checkpoint: it waits for the last
  // step. On CPUs, confirm() does nothing.
  // Throws: as step().
  // Collective: every rank of the group must call this in the same order.
  void confirm();

  // If the ranks synchronize parameters, sets the parameters to their average over the ranks.
  // Otherwise it does nothing.
  // Collective: every rank of the group must call this in the same order.
  void average_parameters();
  // The same for the optimizer's state. Call this before a checkpoint, so that all ranks continue from
  // the same state.
  // Throws: UserError inside a Join.
  // Collective: every rank of the group must call this in the same order.
  void average_state();

  // True on all ranks after the step in which DistributedOptimizerOptions::stop_requested returned true on
  // any rank. Ranks that average parameters, and those that compute on GPUs, learn it one step later; the
  // former cannot use it inside a Join.
  bool stopping() const;

  // Says why the last step() has changed nothing: a gradient was not finite. The same on all ranks.
  const std::optional<NonFiniteGradient>& skipped() const;

  // Returns the loss times loss_scale(), for backward. step() divides the gradients by it.
  torch::Tensor scale(const torch::Tensor& loss) const;
  double loss_scale() const;  // 1 without loss_scaling; the same on all ranks.
  // True if the last step() has changed nothing, because a gradient was not finite on some rank;
  // then loss_scale() has been halved. If it is 1 already, DistributedOptimizerOptions::on_nonfinite
  // says what happens.
  bool overflowed() const;

  // Returns the result of DistributedOptimizerOptions::tune when it is known; the same on all ranks.
  std::optional<TunedPlan> tuned() const;

  // Says whether parameters and state are divided; the same on all ranks of a node. If ranks
  // begin with different parameters, they are divided only after the first step, which compares them.
  Sharding sharding() const;

  // Norm of all gradients in the last step, before clipping; NaN without clip_norm. Waits for a GPU.
  double gradient_norm() const;
  // Size of all buckets, without sparse gradients.
  std::size_t gradient_bytes() const;
  // Returns the bytes copied into buckets since the start. Copies are needed for gradients that autograd
  // computes in other memory.
  std::size_t packed_bytes() const;
  // Returns the bytes of gradients or parameters that this rank has given to collectives since the start.
  std::size_t sent_bytes() const;
  torch::optim::Optimizer& inner();

  // If the ranks divide the state on GPUs, the inner optimizer has none between steps. This gives it the
  // whole state, on each rank, until the next step. Otherwise it does nothing.
  // Collective: every rank of the group must call this in the same order.
  void gather_state();

  // For checkpoints, also of a Run.
  LossScaler* loss_scaler();  // Null without loss_scaling. The type is not installed.
  // Calls `visit` for each parameter that has state, with the whole state, also if the ranks divide it. The
  // tensors are those of the inner optimizer, or else made for this call, for one bucket at a time.
  // Collective: every rank of the group must call this in the same order.
  using VisitState =
      std::function<void(const torch::Tensor& parameter, torch::optim::OptimizerParamState& state)>;
  void visit_state(const VisitState& visit);
  const DistributedOptimizerOptions& options() const;

 private:
  friend class Join;
  void join(bool divide_by_all);
  std::size_t shadow();  // Returns the number of steps of other ranks in which it took part.

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace farandole
