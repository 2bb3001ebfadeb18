#include "farandole/train/distributed_optimizer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/net/stream.h"
#include "farandole/fusion/bucket_planner.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/job/job_errors.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/gradients/gradient_synchronizer.h"
#include "farandole/train/gradients/trained_parameters.h"
#include "farandole/train/optimizer/joining.h"
#include "farandole/train/optimizer/loss_scaler.h"
#include "farandole/train/optimizer/parameter_averaging.h"
#include "farandole/train/replicas/replica_guard.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/update/update_choice.h"

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
        guard(named) {
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
    rules.emplace(inner, parameters.tensors, !sparse.tensors.empty());
    choice.emplace(options, *rules, *gradients, guard.named(),
                   UpdateFacts{.needs_all = needs_all(), .shares_parameters = shares_parameters()});
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

  bool shares_parameters() const {
    const auto& others = session.internals().optimizers;
    return std::ranges::any_of(others, [&](const DistributedOptimizer* other) {
      return std::ranges::any_of(other->impl_->parameters.tensors, [&](const torch::Tensor& tensor) {
        return std::ranges::any_of(parameters.tensors, [&](const auto& own) { return own.is_same(tensor); });
      });
    });
  }

  void use_planned_buckets() {
    updates = choice->make(planner->plan(), std::move(updates), guard.has_stepped());
    follow_loss_scale();
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

  // When a step begins to update.
  void begin_updates() {
    rules->follow_groups();
    updates->begin();
  }

  // `known`: the last bucket of which is known whether it is finite.
  void update(std::size_t bucket, const BucketGradients& with, std::size_t known) {
    const Span span(session.timeline(), Category::optimizer, "update");
    updates->update(bucket, with, gradients->found_nonfinite(known));
  }

  void update_all(const GradientFactor& factor) {
    const auto buckets = gradients->flat().size();
    begin_updates();
    for (std::size_t b = 0; b < buckets; ++b) update(b, {.factor = factor}, buckets - 1);
    updates->end();
  }

  // True if this step cannot end before the host knows whether the gradients are finite. If the session
  // computes on a GPU, fused kernels leave out an update by themselves; the host learns it one step later
  // and throws then.
  bool must_know() const {
    return scaler || joins_gradients() || options.on_nonfinite == OnNonFinite::skip ||
           (options.on_nonfinite == OnNonFinite::stop && rules->has_others());
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
    using Needs = ParameterUpdate::Needs;
    const auto needs = updates->needs();
    const bool updated = already_reduced                              ? update_synchronized()
                         : needs == Needs::buckets_of_ranks           ? update_with_reduction()
                         : needs_all() || needs == Needs::all_buckets ? update_after_reduction()
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
    const double divisor = options.average ? gradients->ranks().size : 1;
    gradients->finish_unreduced([&](std::size_t b) {
      if (b == 0) begin_updates();
      if (options.on_nonfinite == OnNonFinite::update || gradients->finite())
        update(b, {.by_rank = gradients->buckets_of_ranks(), .divisor = divisor}, b);
    });
    updates->end();
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
      if (b == 0) begin_updates();
      if (any || gradients->finite()) update(b, {}, b);
    });
    updates->end();
    return accept_gradients();
  }

  void end_step() {
    rules->update_others();
    if (scaler) scaler->stepped();
  }

  // Runs the optimizer's own step, which may evaluate the closure several times.
  torch::Tensor step(const torch::optim::Optimizer::LossClosure& closure) {
    if (joining->under_way())
      throw UserError("step() cannot take a closure inside a Join, because ranks without batches have none");
    if (scaler) throw UserError("step() cannot take a closure with loss scaling");
    if (updates->sharding().divided) {
      if (options.shard == Shard::required)
        throw UserError(
            "step() cannot take a closure if parameters are divided by the ranks of a node; use shard auto");
      updates->stop_sharing("step() takes a closure", true);
      choice->keep_buckets();
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
         choice->wants_another(*updates, guard.has_stepped())))
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
    if (joining->under_way()) return averaging->average_of_stepped(updates->flat(), *joining, active);
    averaging->average(updates->flat().writable_parameters());
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
  std::optional<OptimizerRules> rules;
  std::optional<UpdateChoice> choice;
  std::unique_ptr<ParameterUpdate> updates;
  bool synchronized = false;  // Gradients are reduced and have not been used by a step.
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
    impl_->updates->stop_sharing("the optimizer has ended", !impl_->in_step);
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
  session.optimizer_ended_step(this, now_ns());
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
  impl_->updates->gather_state();
}
void DistributedOptimizer::visit_state(const VisitState& visit) {
  impl_->updates->visit_state(visit);
}
Sharding DistributedOptimizer::sharding() const {
  return impl_->updates->sharding();
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
const DistributedOptimizerOptions& DistributedOptimizer::options() const {
  return impl_->options;
}

}  // namespace farandole
