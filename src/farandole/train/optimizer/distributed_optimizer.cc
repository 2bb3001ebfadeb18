#include "farandole/train/distributed_optimizer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <malloc.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/net/stream.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/fusion/bucket_planner.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/job/job_errors.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/optimizer/bucket_optimizer.h"
#include "farandole/train/optimizer/divided_optimizer.h"
#include "farandole/train/optimizer/gradient_synchronizer.h"
#include "farandole/train/optimizer/joining.h"
#include "farandole/train/optimizer/loss_scaler.h"
#include "farandole/train/optimizer/parameter_averaging.h"
#include "farandole/train/optimizer/replica_guard.h"
#include "farandole/train/optimizer/sharing_choice.h"
#include "farandole/train/optimizer/trained_parameters.h"
#include "farandole/train/replica_hashes.h"
#include "farandole/train/session_internals.h"

namespace farandole {

namespace {

// Refuses options that exclude each other. docs/api.md has the same table, with what is refused later:
// closures with loss scaling, and some calls inside a Join.
// Throws: UserError for the first pair that is used together; the same on all ranks.
void refuse_combinations(const DistributedOptimizerOptions& options, bool on_gpu) {
  const bool averages_parameters = options.synchronization.of_parameters();
  const bool compresses = options.compression.kind != Compression::Kind::none;
  const bool sparse = !options.sparse_parameters.empty();
  const struct {
    bool together;
    const char* why;
  } exclusions[] = {
      {options.tune && options.compression.of_ranks(),
       "bucket sizes cannot be tuned with compression, because its rounding depends on the bucket"},
      {averages_parameters && options.loss_scaling,
       "loss scaling needs the gradients of all ranks; it cannot be used with averaged parameters"},
      {averages_parameters && compresses,
       "compression applies to gradients; it cannot be used with averaged parameters"},
      {averages_parameters && sparse,
       "sparse_parameters apply to reduced gradients; they cannot be used with averaged parameters"},
      {on_gpu && (sparse || compresses || averages_parameters),
       "sparse gradients, compression and averaged parameters work on CPUs only; use the device cpu"},
  };
  for (const auto& exclusion : exclusions)
    if (exclusion.together) throw UserError(exclusion.why);
}

// The session's wish to stop can be set later.
DistributedOptimizerOptions with_wish(DistributedOptimizerOptions options,
                                      const Session::Internals& session) {
  options.stop_requested = [own = std::move(options.stop_requested), &session] {
    return (own && own()) || (session.stop_wish && session.stop_wish());
  };
  return options;
}

}  // namespace

struct DistributedOptimizer::Impl {
  Impl(Session& the_session, torch::optim::Optimizer& the_optimizer, const NamedParameters& named,
       const DistributedOptimizerOptions& the_options)
      : session(the_session),
        inner(the_optimizer),
        options(with_wish(the_options, the_session.internals())),
        parameters(named),
        own_vote(the_options.stop_requested != nullptr),
        guard(named, [this] { return hashes_of_shared(); }) {
    auto& internals = session.internals();
    refuse_combinations(options, internals.gpu.has_value());
    if (options.loss_scaling) scale_loss(*options.loss_scaling);
    const auto sparse = parameters.take_sparse(options.sparse_parameters, inner);
    untrained.emplace(inner, named, parameters, sparse);
    const bool narrow = options.compression.kind == Compression::Kind::between_nodes;
    auto ranks = internals.new_communicator(internals.waiting_for_gradients(),
                                            narrow ? Wire::bfloat16 : Wire::exact, options.group);
    check_plan_agreement(*ranks, plan_buckets(parameters.specs(), options.buckets));
    check_plan_agreement(*ranks, {sparse.specs(), {}});
    if (options.synchronization.of_parameters()) {
      averaging.emplace(std::move(ranks), options.synchronization.every);
      if (own_vote || internals.stop_wish)
        stop_vote.emplace(internals.new_communicator(Waiting::yielding, Wire::exact, options.group),
                          session.timeline());
    }
    gradients.emplace(session, std::move(ranks), parameters, sparse, options);
    choose_sharing();
    joining.emplace(everyone(), inner);
    // The first order is kept in two cases. With compression, the bits of the result depend on the
    // plan, and a resumed run would make a new one. With averaged parameters, each rank's gradients
    // have a different order.
    const bool keep_order = options.compression.of_ranks() || options.synchronization.of_parameters();
    planner.emplace(gradients->ranks(), parameters.specs(),
                    BucketPlanner::Options{options.buckets, keep_order, options.tune});
    use_planned_buckets();
  }

  void scale_loss(const LossScaling& scaling) {
    int exponent = 0;
    if (std::frexp(scaling.initial, &exponent) != 0.5 || scaling.initial < LossScaler::smallest ||
        scaling.initial > LossScaler::largest)
      throw UserError("the first loss scale must be a power of two between 1 and 2^24");
    scaler.emplace(scaling);
  }

  void choose_sharing() {
    const auto& others = session.internals().optimizers;
    const bool shares_parameters = std::ranges::any_of(others, [&](const DistributedOptimizer* other) {
      return std::ranges::any_of(other->impl_->parameters.tensors, [&](const torch::Tensor& tensor) {
        return std::ranges::any_of(parameters.tensors, [&](const auto& own) { return own.is_same(tensor); });
      });
    });
    why_not =
        why_not_shared(options, inner, parameters, gradients->ranks(),
                       {.on_gpu = gradients->device() != nullptr,
                        .can_gather = gradients->device() != nullptr && gradients->device()->can_gather(),
                        .shares_parameters = shares_parameters});
    if (!why_not.empty()) return;
    has_parts = gradients->device() != nullptr;
    if (!has_parts) sharing = gradients->ranks().node_sharing();
    may_share = sharing != nullptr;
  }

  void use_planned_buckets() {
    if (has_parts) return use_parts();
    updates.reset();
    may_share = may_share && all_still_share();
    const bool divides = may_share && have_same_parameters();
    if (!divides && guard.has_stepped() && std::exchange(sharing, nullptr) != nullptr)
      why_not = "the ranks have different parameters";
    may_share = sharing != nullptr;
    divided = false;
    // One kernel reduces and updates a bucket if nothing else must be known about all gradients before.
    fuses = divides && sharing->is_whole() && !needs_all();
    gradients->use(planner->plan(), fuses ? sharing : nullptr);
    if (divides) divide();
    if (!divided) {
      if (std::exchange(fuses, false)) gradients->use(planner->plan());
      updates.emplace(inner, gradients->plan(), parameters.tensors, gradients->flat());
    }
    needs_buckets = false;
    follow_loss_scale();
  }

  // A node decides for itself to stop. In new buckets, all nodes do the same.
  bool all_still_share() {
    int stopped = sharing == nullptr ? 1 : 0;
    gradients->ranks().allreduce("shared parameters", &stopped, 1, DType::int32, ReduceOp::max);
    if (stopped == 0) return true;
    if (std::exchange(sharing, nullptr) != nullptr) why_not = "another node has stopped sharing them";
    return false;
  }

  // On GPUs, each rank has all parameters, and the state of its part of them.
  void use_parts() {
    const auto former = std::move(parts);
    gradients->use(planner->plan(), nullptr, Divided::yes);
    parts = std::make_unique<DividedOptimizer>(inner, *gradients->device(), gradients->plan(),
                                               parameters.tensors, gradients->flat(), former.get());
    follow_loss_scale();
  }

  // Ranks that begin with different parameters are refused in the first step. They do not share them before.
  bool have_same_parameters() {
    return find_disagreements(gradients->ranks(), "parameters to share", hashes_of(guard.named())).empty();
  }

  void divide() {
    std::string reason;
    try {
      updates.emplace(inner, gradients->plan(), parameters.tensors, gradients->flat(), sharing);
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::failure) throw;
      reason = error.what();
    }
    int failed = reason.empty() ? 0 : 1;
    gradients->ranks().allreduce("shared parameters", &failed, 1, DType::int32, ReduceOp::max);
    divided = failed == 0;
    if (divided) {
      ::malloc_trim(0);  // Returns the former memory of the parameters to the system.
      return;
    }
    updates.reset();
    const bool speaks = std::exchange(sharing, nullptr)->node_rank() == 0;
    may_share = false;
    why_not = reason.empty() ? "another node has no memory that its ranks can share" : reason;
    if (options.shard == Shard::required) throw Error(why_not);
    if (speaks)
      log_warning("parameters and optimizer state are not divided by the ranks of a node: {}", why_not);
  }

  // Parameters that have memory of their own on this rank are not in the result.
  KnownHashes hashes_of_shared() { return divided ? updates->hash_places() : KnownHashes(); }

  // From now on, each rank has parameters and state of its own.
  void stop_sharing(bool meets) {
    if (!std::exchange(divided, false)) return;
    if (meets) sharing->meet("end of shared parameters");
    updates->stop_sharing();
    if (meets) sharing->meet("end of shared parameters");
    sharing = nullptr;
    fuses = false;
  }

  // Call this when a step begins to update. Ranks whose program changes parameters in different ways, or in
  // every step, have their own from now on, with the changes.
  void adopt_changes() {
    if (!divided) return;
    constexpr int in_every_step = 3;
    const bool required = options.shard == Shard::required;
    if (updates->prepare(required ? std::numeric_limits<int>::max() : in_every_step)) return;
    const auto differing = updates->first_difference();
    const auto reason = differing ? fmt::format("the ranks of a node have changed {} in different ways",
                                                parameters.names[*differing])
                                  : std::string("the program changes parameters in every step");
    if (required)
      throw UserError(reason +
                      ", so that they cannot share parameters; change them alike, or use shard auto");
    const bool speaks = sharing->node_rank() == 0;
    needs_buckets = fuses;
    stop_sharing(false);
    why_not = reason;
    if (speaks)
      log_warning("parameters and optimizer state are no longer divided by the ranks of a node: {}", reason);
  }

  // Where the reduction can, it divides the gradients by the scale of the loss.
  void follow_loss_scale() {
    if (scaler && gradients->multiplies()) gradients->multiply_by(1 / scaler->scale());
  }

  void synchronize() {
    if (!synchronized) reduce_gradients(true);
  }

  // `active`: this rank still has batches. Returns whether any rank still has batches.
  bool reduce_gradients(bool active) {
    const bool contributes = active || gradients->pending();
    if (!contributes) follow_loss_scale();
    gradients->finish();
    gradients->gather();
    if (joins_gradients()) gradients->await_results();
    synchronized = true;
    if (joins_gradients()) {
      const auto there = joining->count(active, contributes);
      if (there.active == 0) return false;
      if (options.average) gradients->scale(joining->correction(there));
    }
    gradients->scale(final_factor());
    return true;
  }

  // The factor that undoes the scale of the loss, if the reduction has not, and clips.
  GradientFactor final_factor() {
    const double unscale = scaler && !gradients->multiplies() ? 1 / scaler->scale() : 1;
    if (!options.clip_norm) return unscale;
    norm = gradients->norm() * unscale;
    const auto largest = torch::full_like(norm, *options.clip_norm);
    const auto factor =
        torch::where(norm > largest, unscale * (largest / (norm + 1e-6)), torch::full_like(norm, unscale));
    if (gradients->on_device()) return factor;
    return factor.item<double>();
  }

  // `known`: the last bucket of which is known whether it is finite.
  void update(std::size_t bucket, const GradientFactor& factor, std::size_t known) {
    const Span span(session.timeline(), Category::optimizer, "update");
    const auto leave_out = gradients->found_nonfinite(known);
    if (parts != nullptr) parts->update(bucket, factor, leave_out);
    if (updates) updates->update(bucket, factor, leave_out);
  }

  // No rank may change parameters before all ranks of the node have come to the end of their passes, or go on
  // before all parts are updated.
  void update_all(const GradientFactor& factor) {
    const auto buckets = gradients->flat().size();
    adopt_changes();
    for (std::size_t b = 0; b < buckets; ++b) update(b, factor, buckets - 1);
    if (parts != nullptr) parts->hold();
    if (divided) sharing->meet("end of the update");
  }

  // True if this step cannot end before the host knows whether the gradients are finite. If the session
  // computes on a GPU, fused kernels leave out an update by themselves; the host learns it one step later
  // and throws then.
  bool must_know() const {
    return scaler || joins_gradients() || options.on_nonfinite == OnNonFinite::skip ||
           (options.on_nonfinite == OnNonFinite::stop && has_others());
  }

  // Called when all gradients are reduced. Returns whether the parameters should be updated.
  bool accept_gradients() {
    if (must_know()) gradients->await_results();
    if (scaler && !gradients->finite() && scaler->overflowed()) {
      overflowed = true;
      return false;
    }
    if (options.on_nonfinite == OnNonFinite::update || gradients->finite()) return true;
    skipped = gradients->find_nonfinite();
    if (options.on_nonfinite == OnNonFinite::stop) throw *skipped;
    return false;
  }

  // The norm, or the decision of all ranks about the step, needs all gradients before the first update.
  bool needs_all() const { return options.clip_norm || scaler || options.on_nonfinite == OnNonFinite::skip; }

  // There are four ways from gradients to parameters; they differ in what must be known before the first
  // update. Each returns whether the parameters were updated.
  void step() {
    untrained->refuse_gradients();
    skipped.reset();
    overflowed = false;
    if (joins_gradients()) {
      synchronize();
      joining->agree_to_step(true, true);
    }
    const bool already_reduced = std::exchange(synchronized, false);
    const bool updated = already_reduced          ? update_synchronized()
                         : fuses                  ? update_with_reduction()
                         : needs_all() || divided ? update_after_reduction()
                                                  : update_during_reduction();
    if (updated) end_step();
  }

  // synchronize() has reduced and scaled the gradients, and the caller may have changed them since.
  bool update_synchronized() {
    if (!accept_gradients()) return false;
    gradients->collect();
    update_all(1.0);
    return true;
  }

  // Each rank reads its part of a bucket from all ranks.
  bool update_with_reduction() {
    auto* const node = sharing;
    gradients->finish_unreduced([&](std::size_t b) {
      if (b == 0) adopt_changes();
      if (options.on_nonfinite != OnNonFinite::update && !gradients->finite()) return;
      const Span span(session.timeline(), Category::optimizer, "update");
      updates->update_from(b, gradients->buckets_of_ranks(), options.average);
    });
    node->meet("end of the update");
    return accept_gradients();
  }

  bool update_after_reduction() {
    gradients->finish();
    if (!accept_gradients()) return false;
    const auto factor = final_factor();
    update_all(factor);
    if (const auto* const known = std::get_if<double>(&factor)) gradients->scale_sparse(*known);
    return true;
  }

  // A bucket is updated while later buckets are still being reduced. On a device, kernels leave out updates
  // behind a gradient that is not finite.
  bool update_during_reduction() {
    const bool any = options.on_nonfinite == OnNonFinite::update || gradients->on_device();
    gradients->finish([&](std::size_t b) {
      if (any || gradients->finite()) update(b, 1.0, b);
    });
    if (parts != nullptr) parts->hold();
    return accept_gradients();
  }

  bool has_others() const { return parts != nullptr ? parts->has_others() : updates->has_others(); }

  void end_step() {
    if (parts != nullptr) parts->update_others();
    if (updates) updates->update_others();
    if (scaler) scaler->stepped();
  }

  // Runs the optimizer's own step, which may evaluate the closure several times.
  torch::Tensor step(const torch::optim::Optimizer::LossClosure& closure) {
    if (joining->under_way())
      throw UserError("step() cannot take a closure inside a Join, because ranks without batches have none");
    if (scaler) throw UserError("step() cannot take a closure with loss scaling");
    if (divided || has_parts) {
      if (options.shard == Shard::required)
        throw UserError(
            "step() cannot take a closure if parameters are divided by the ranks of a node; use shard auto");
      stop_sharing(true);
      why_not = "step() takes a closure";
    }
    planner->keep_order();  // Such an optimizer may keep references to the parameters' memory.
    auto loss = inner.step([&] {
      synchronized = false;
      auto value = closure();
      untrained->refuse_gradients();
      synchronize();
      gradients->await_results();
      if (!accept_gradients()) throw *skipped;  // The optimizer has begun to change parameters.
      return loss_of_all(value);
    });
    synchronized = false;
    return loss;
  }

  // A line search decides by the loss, so the ranks must see the same one. Whoever has averaged it already
  // gets the same value.
  torch::Tensor loss_of_all(const torch::Tensor& own) {
    if (averaging || !own.defined()) return own;
    auto loss = own.detach().to(torch::kCPU, torch::kFloat64).contiguous().clone();
    gradients->ranks().allreduce("loss of the closure", loss.data_ptr(),
                                 static_cast<std::size_t>(loss.numel()), DType::float64,
                                 options.average ? ReduceOp::average : ReduceOp::sum);
    return loss.to(own.device(), own.scalar_type());
  }

  void zero_grad() {
    if (gradients->overtaken()) throw UserError(of_inner_step);
    const bool thrown_away = gradients->clear();
    if (thrown_away) ++discarded;
    if (synchronized && !thrown_away) gradients->discard();
    if (joins_gradients() && (thrown_away || synchronized)) {
      if (thrown_away) joining->count(true, true);
      joining->agree_to_step(true, false);
    }
    synchronized = false;
    if (!joining->under_way() &&  // Ranks without batches do not know about this call.
        (planner->reconsider(gradients->first_order()) ||
         (sharing != nullptr && !divided && guard.has_stepped()) || needs_buckets))
      use_planned_buckets();
    follow_loss_scale();
  }

  Communicator& everyone() { return averaging ? averaging->ranks() : gradients->ranks(); }

  // Gradients are reduced while step() begins; an optimizer with a closure reduces them in between.
  template <class Step>
  torch::Tensor guarded(bool has_closure, Step do_step) {
    in_step = true;
    guard.note_start(everyone());
    if (has_closure && !gradients->pending()) guard.compare_start(everyone());
    auto loss = do_step();
    guard.compare_start(everyone());
    guard.step_ended();
    in_step = false;
    return loss;
  }

  // Throws: UserError if the training has gone wrong silently.
  // Collective: every rank of the group must call this in the same order.
  void check_end() {
    if (in_step || joining->under_way()) return;
    if (gradients->overtaken()) throw UserError(of_inner_step);
    if (discarded > 1 && !guard.has_stepped())
      throw UserError(
          "gradients were reduced and discarded, but step() of the DistributedOptimizer was never called");
    // Not over the communicator of the gradients: if other ranks have more batches, their reduction is no
    // different call of this collective, but they wait for each other, and the watchdog says so.
    if (!averaging && !gradients->pending())
      guard.compare_end(options.group != nullptr ? communicator_of(*options.group)
                                                 : session.internals().communicator());
  }

  bool stopping() const {
    if (averaging) return stop_vote && stop_vote->stopping();
    return gradients->stopping();
  }

  // Starts the vote of ranks that average parameters, and tells the session what the step has carried.
  void vote() {
    const bool carried = !averaging || (stop_vote && !joining->under_way());
    if (carried && stop_vote) stop_vote->next(options.stop_requested());
    if (!carried || trains_in_group()) return;
    auto& internals = session.internals();
    ++internals.votes;
    internals.stop_voted |= stopping();
  }
  bool trains_in_group() const { return options.group != nullptr && options.group->size() < session.size(); }

  // `active`: this rank still has batches. Returns whether any rank still has batches.
  bool average_parameters(bool active) {
    if (joining->under_way()) return averaging->average_of_stepped(*updates, *joining, active);
    averaging->average(updates->writable_parameters());
    return true;
  }

  // Ranks that average parameters communicate only for the averages.
  bool joins_gradients() const { return joining->under_way() && !averaging; }

  void join(bool divide_by_all) {
    if (stop_vote && own_vote)
      throw UserError("ranks that average parameters cannot use stop_requested inside a Join");
    zero_grad();
    guard.note_start(everyone());
    guard.compare_start(everyone());
    planner->skip_time();
    joining->begin(divide_by_all);
  }

  // Takes part in the steps of the other ranks, without gradients.
  std::size_t shadow() {
    std::size_t turns = 0;
    if (averaging)
      while (average_parameters(false)) ++turns;
    else
      turns = shadow_steps();
    gradients->clear();
    synchronized = false;
    joining->end();
    guard.step_ended();
    return turns;
  }

  std::size_t shadow_steps() {
    std::size_t steps = 0;
    if (!gradients->pending()) gradients->clear();  // Clears the sparse gradients of the last step.
    for (; reduce_gradients(false); ++steps) {
      if (joining->agree_to_step(false, false) && accept_gradients()) {
        update_all(1.0);
        end_step();
      }
      vote();
      gradients->clear();
    }
    return steps;
  }

  Sharding sharding() const {
    if (parts != nullptr) return parts->sharding();
    Sharding result{divided, divided ? "" : why_not};
    if (!divided) return result;
    result.ranks = sharing->node_size();
    result.bytes = updates->shared_bytes();
    result.bytes_undivided = result.bytes * static_cast<std::size_t>(result.ranks);
    return result;
  }

  Session& session;
  torch::optim::Optimizer& inner;
  const DistributedOptimizerOptions options;
  TrainedParameters parameters;  // Parameters with dense gradients.
  std::optional<UntrainedParameters> untrained;
  std::optional<ParameterAveraging> averaging;  // Set if the ranks synchronize parameters.
  std::optional<StopVote> stop_vote;            // Set if they also ask for a stop.
  const bool own_vote;                          // The user's options ask for it.
  ReplicaGuard guard;
  std::optional<GradientSynchronizer> gradients;
  std::optional<Joining> joining;
  std::optional<BucketPlanner> planner;
  std::optional<BucketOptimizer> updates;
  bool has_parts = false;                   // On GPUs, each rank has its part of the state.
  std::unique_ptr<DividedOptimizer> parts;  // Then in the place of `updates`.
  // Set if the ranks of a node share parameters, or will after the first step.
  NodeSharing* sharing = nullptr;
  bool may_share = false;      // The same on all ranks: no node had stopped when the buckets were made.
  bool divided = false;        // They do.
  bool fuses = false;          // step() reduces and updates a bucket with one kernel.
  bool needs_buckets = false;  // Other ones, because these are made for such a kernel.
  std::string why_not;         // They do not share.
  bool synchronized = false;   // Gradients are reduced and have not been used by a step.
  std::optional<NonFiniteGradient> skipped;
  std::optional<LossScaler> scaler;
  bool overflowed = false;
  bool in_step = false;  // Or step() has thrown.
  int discarded = 0;     // How often zero_grad() has discarded gradients.
  const int exceptions_at_start = std::uncaught_exceptions();
  torch::Tensor norm;  // Norm in the last step with clip_norm; a scalar of float64.
};

DistributedOptimizer::DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                                           const NamedParameters& parameters,
                                           DistributedOptimizerOptions options)
    : impl_(std::make_unique<Impl>(session, optimizer, parameters, options)) {
  session.internals().optimizers.push_back(this);
}

DistributedOptimizer::~DistributedOptimizer() {
  auto& session = impl_->session;
  session.internals().optimizer_is_gone(this);
  std::erase(session.internals().optimizers, this);
  if (std::uncaught_exceptions() > impl_->exceptions_at_start) return;
  try {
    impl_->check_end();
    impl_->stop_sharing(!impl_->in_step);
  } catch (const std::exception&) {
    end_job(session.internals(), "farandole", describe_error(std::current_exception(), &session.internals()));
  }
}

void DistributedOptimizer::zero_grad() {
  impl_->zero_grad();
}

void DistributedOptimizer::join(bool divide_by_all) {
  impl_->join(divide_by_all);
}
std::size_t DistributedOptimizer::shadow() {
  return impl_->shadow();
}

void DistributedOptimizer::synchronize() {
  impl_->synchronize();
}

torch::Tensor DistributedOptimizer::step(torch::optim::Optimizer::LossClosure closure) {
  auto& session = impl_->session.internals();
  session.optimizer_begins_step(this);
  auto loss = impl_->guarded(closure != nullptr, [&] {
    torch::Tensor value;
    if (closure)
      value = impl_->step(closure);
    else
      impl_->step();
    if (impl_->averaging && impl_->averaging->step_ended()) impl_->average_parameters(true);
    return value;
  });
  impl_->vote();
  if (!impl_->joining->under_way()) impl_->planner->step_ended();
  session.optimizer_ended_step(this);
  return loss;
}

void DistributedOptimizer::confirm() {
  if (!impl_->gradients->on_device() || impl_->must_know()) return;  // step() has decided.
  impl_->gradients->await_results();
  if (impl_->options.on_nonfinite == OnNonFinite::stop) impl_->accept_gradients();
}

void DistributedOptimizer::average_parameters() {
  if (impl_->averaging) impl_->average_parameters(true);
}
void DistributedOptimizer::average_state() {
  if (impl_->joining->under_way()) throw UserError("average_state() cannot be called inside a Join");
  if (impl_->averaging) impl_->averaging->average_state(impl_->inner);
}

bool DistributedOptimizer::stopping() const {
  return impl_->stopping();
}
const std::optional<NonFiniteGradient>& DistributedOptimizer::skipped() const {
  return impl_->skipped;
}
torch::Tensor DistributedOptimizer::scale(const torch::Tensor& loss) const {
  return impl_->scaler ? loss * impl_->scaler->scale() : loss;
}
double DistributedOptimizer::loss_scale() const {
  return impl_->scaler ? impl_->scaler->scale() : 1;
}
bool DistributedOptimizer::overflowed() const {
  return impl_->overflowed;
}
LossScaler* DistributedOptimizer::loss_scaler() {
  return impl_->scaler ? &*impl_->scaler : nullptr;
}
std::optional<TunedPlan> DistributedOptimizer::tuned() const {
  const auto* const tuner = impl_->planner->tuned();
  if (tuner == nullptr) return std::nullopt;
  return TunedPlan{tuner->current(), tuner->milliseconds(), tuner->default_milliseconds(), tuner->steps()};
}
void DistributedOptimizer::gather_state() {
  if (impl_->parts != nullptr) impl_->parts->gather_state();
}
Sharding DistributedOptimizer::sharding() const {
  return impl_->sharding();
}
KnownHashes DistributedOptimizer::hashes_of_shared() {
  return impl_->hashes_of_shared();
}
double DistributedOptimizer::gradient_norm() const {
  return impl_->norm.defined() ? impl_->norm.item<double>() : std::numeric_limits<double>::quiet_NaN();
}
std::size_t DistributedOptimizer::gradient_bytes() const {
  return impl_->gradients->bucket_bytes();
}
std::size_t DistributedOptimizer::packed_bytes() const {
  return impl_->gradients->packed_bytes();
}
std::size_t DistributedOptimizer::sent_bytes() const {
  return impl_->averaging ? impl_->averaging->sent_bytes() : impl_->gradients->sent_bytes();
}
torch::optim::Optimizer& DistributedOptimizer::inner() {
  return impl_->inner;
}
DividedOptimizer* DistributedOptimizer::divided() {
  return impl_->parts.get();
}
const DistributedOptimizerOptions& DistributedOptimizer::options() const {
  return impl_->options;
}

}  // namespace farandole
