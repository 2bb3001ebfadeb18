#include "farandole/train/distributed_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/comm/solo_communicator.h"
#include "farandole/fusion/gradient_reducer.h"
#include "farandole/fusion/plan_agreement.h"
#include "farandole/train/join_turn.h"
#include "farandole/train/optimizer/bucket_optimizer.h"
#include "farandole/train/optimizer/gradient_buckets.h"
#include "farandole/train/optimizer/make_compressor.h"
#include "farandole/train/optimizer/model_average.h"
#include "farandole/train/optimizer/sparse_gradients.h"
#include "farandole/train/optimizer/tensor_bytes.h"
#include "farandole/train/optimizer/trained_parameters.h"

namespace farandole {

struct DistributedOptimizer::Impl {
  Impl(Session& the_session, torch::optim::Optimizer& the_optimizer, const NamedParameters& named,
       const DistributedOptimizerOptions& the_options)
      : session(the_session), inner(the_optimizer), options(the_options), parameters(named) {
    if (options.tune && compresses())
      throw UserError("compressors choose by bucket: with compression, bucket sizes are not tuned");
    const auto sparse_ones = parameters.take_sparse(options.sparse_parameters, inner);
    const auto plan = plan_buckets(parameters.specs(), options.buckets);
    compressor = make_compressor(options.compression, plan.tensors);
    auto traced = options.group == nullptr
                      ? session.new_communicator(session.waiting_for_gradients())
                      : session.new_communicator(session.waiting_for_gradients(), *options.group);
    check_plan_agreement(*traced, plan);
    check_plan_agreement(*traced, {sparse_ones.specs(), {}});
    if (options.synchronization.of_parameters()) {
      if (compresses())
        throw UserError("compression is of gradients; it does not go with averaged parameters");
      if (!sparse_ones.names.empty())
        throw UserError("sparse_parameters have gradients reduced; they do not go with averaged parameters");
      planned_again = true;  // by an order that were each rank's own
      communicator = std::make_unique<SoloCommunicator>();
      average.emplace(std::move(traced));
    } else {
      number = traced->number();
      communicator = std::move(traced);
    }
    sparse = std::make_unique<SparseGradients>(*communicator, sparse_ones.names, sparse_ones.tensors);
    build(bucket_bytes);
  }

  void build(std::size_t bytes_a_bucket) {
    bucket_bytes = bytes_a_bucket;
    auto sizes = options.buckets;
    sizes.bytes = bucket_bytes;
    packed_before = packed_bytes();
    sent_before = sent_bytes() - sparse->sent_bytes();
    buckets.reset();
    gradients.reset();
    explanation.reset();
    reducer.reset();
    reducer = std::make_unique<GradientReducer>(*communicator, plan_buckets(parameters.specs(), sizes, order),
                                                options.average ? ReduceOp::average : ReduceOp::sum,
                                                session.timeline(), compresses() ? compressor.get() : nullptr);
    if (number)
      explanation = session.collective_registry().explain(
          *number, [this](std::string_view collective) { return reducer->explain(collective); });
    gradients =
        std::make_unique<GradientBuckets>(*reducer, parameters.tensors, options.backward_passes_per_step);
    buckets =
        std::make_unique<BucketOptimizer>(inner, reducer->plan(), parameters.tensors, gradients->flat());
  }

  // Once, after the first step: buckets in the order in which rank 0's gradients came, so that the first are
  // full as early as can be. Not where bits depend on the plan, which a resumed run makes anew: compressors
  // choose by bucket.
  void plan_again() {
    if (planned_again || reducer->first_order().empty()) return;
    planned_again = true;
    if (compresses()) return;
    const auto own = reducer->first_order();
    std::vector<std::uint64_t> of_root(own.begin(), own.end());
    communicator->broadcast("order of gradients", of_root.data(), of_root.size() * sizeof of_root[0], 0);
    order.assign(of_root.begin(), of_root.end());
    build(bucket_bytes);
    if (options.tune && communicator->size > 1)
      tuner.emplace(bucket_sizes_to_try(reducer->plan().tensors, bucket_bytes));
  }

  // At the end of each step; ranks take the same steps, and agree once a round.
  void time_step() {
    const auto before = std::exchange(step_ended_ns, joining ? 0 : now_ns());
    if (!tuner || tuner->finished() || before == 0 || bucket_bytes != tuner->current()) return;
    if (!tuner->record(static_cast<double>(step_ended_ns - before) * 1e-6)) return;
    auto medians = tuner->medians();
    communicator->allreduce("medians of steps", medians.data(), medians.size(), DType::float64,
                            ReduceOp::max);
    tuner->decide(medians);
  }

  std::size_t packed_bytes() const {
    return packed_before + (gradients != nullptr ? gradients->packed_bytes() : 0);
  }
  std::size_t sent_bytes() const {
    return sent_before + (reducer != nullptr && !average ? reducer->sent_bytes() : 0) + sparse->sent_bytes();
  }

  bool compresses() const { return options.compression.kind != Compression::Kind::none; }

  void reduce_sparse() { sparse->reduce(options.average ? communicator->size : 1); }

  void synchronize() {
    if (!synchronized) reduce_all(true);
  }

  // `active`: this rank still has batches. Returns whether any rank has.
  bool reduce_all(bool active) {
    const bool contributes = active || gradients->pending();
    gradients->finish();
    reduce_sparse();
    synchronized = true;
    if (joining_gradients()) {
      const auto there = count_joined(*communicator, active, contributes);
      if (there.active == 0) return false;
      if (options.average && !divide_by_all) scale(communicator->size / double(there.contributing));
    }
    scale(clip_factor());
    return true;
  }

  void scale(double factor) {
    if (factor == 1) return;
    const torch::NoGradGuard no_grad;
    for (auto flat : gradients->flat()) flat.mul_(factor);
    sparse->scale(factor);
  }

  bool joining_gradients() const { return joining && !average; }

  double clip_factor() {
    if (!options.clip_norm) return 1;
    norm = std::hypot(gradients->norm(), sparse->norm());
    return norm > *options.clip_norm ? *options.clip_norm / (norm + 1e-6) : 1;
  }

  void update(std::size_t bucket, double factor) {
    const Span span(session.timeline(), Category::optimizer, "update");
    buckets->update(bucket, factor);
  }

  void update_all(double factor) {
    for (std::size_t b = 0; b < gradients->flat().size(); ++b) update(b, factor);
  }

  // Without a norm to wait for, a bucket is updated while those behind it are still being reduced.
  void step() {
    if (joining_gradients()) {
      synchronize();
      agree_to_step(*communicator, inner, true, true);
    }
    if (synchronized) {
      for (std::size_t b = 0; b < gradients->flat().size(); ++b) gradients->collect(b);
      update_all(1);
    } else if (options.clip_norm) {
      gradients->finish();
      reduce_sparse();
      const double factor = clip_factor();
      update_all(factor);
      if (factor != 1) sparse->scale(factor);
    } else {
      gradients->finish([this](std::size_t b) { update(b, 1); });
      reduce_sparse();
    }
    buckets->update_others();
    synchronized = false;
  }

  // The optimizer's own step, which evaluates the closure as often as it likes.
  torch::Tensor step(const torch::optim::Optimizer::LossClosure& closure) {
    if (joining) throw UserError("step() takes no closure inside a Join: ranks without batches have none");
    planned_again = true;  // such an optimizer may hold on to the parameters' memory
    auto loss = inner.step([&] {
      synchronized = false;
      auto value = closure();
      synchronize();
      return value;
    });
    synchronized = false;
    return loss;
  }

  // At the end of each step.
  void average_where_due() {
    if (++steps_alone == options.synchronization.every) average_parameters();
  }

  void average_parameters() {
    if (!average) return;
    if (joining) {
      average_turn(true);
      return;
    }
    average_flat(buckets->writable_parameters());
  }

  void average_flat(std::vector<torch::Tensor>& flat_parameters) {
    average->average(flat_parameters);
    for (const auto& flat : flat_parameters) sent_before += bytes_of(flat);
    steps_alone = 0;
  }

  // The average of those that have stepped since the last. Returns whether any rank still has batches.
  bool average_turn(bool active) {
    const torch::NoGradGuard no_grad;
    const bool stepped = steps_alone > 0;
    const int size = average->ranks().size();
    const auto there = count_joined(average->ranks().communicator(), active, stepped);
    if (there.contributing == 0) return there.active > 0;
    auto& flat_parameters = buckets->writable_parameters();
    for (auto& flat : flat_parameters) {
      if (!stepped) flat.zero_();
      if (stepped && there.contributing < size) flat.mul_(size / double(there.contributing));
    }
    average_flat(flat_parameters);
    return there.active > 0;
  }

  void zero_grad() {
    const bool thrown_away = gradients->clear();
    if (joining_gradients() && (thrown_away || synchronized)) {
      if (thrown_away) {
        reduce_sparse();
        count_joined(*communicator, true, true);
      }
      agree_to_step(*communicator, inner, true, false);
    }
    sparse->clear();
    synchronized = false;
    if (joining) return;  // ranks without batches do not know of this call
    plan_again();
    if (tuner && bucket_bytes != tuner->current()) build(tuner->current());
  }

  void join(bool by_all) {
    zero_grad();
    joining = true;
    divide_by_all = by_all;
  }

  // What the others still do, without gradients.
  std::size_t shadow() {
    std::size_t turns = 0;
    if (!gradients->pending()) sparse->clear();  // of the last step
    if (average)
      while (average_turn(false)) ++turns;
    else
      for (; reduce_all(false); ++turns) {
        if (agree_to_step(*communicator, inner, false, false)) {
          update_all(1);
          buckets->update_others();
        }
        gradients->clear();
        sparse->clear();
      }
    gradients->clear();
    sparse->clear();
    synchronized = joining = false;
    step_ended_ns = 0;
    return turns;
  }

  Session& session;
  torch::optim::Optimizer& inner;
  const DistributedOptimizerOptions options;
  TrainedParameters parameters;         // those in buckets
  std::optional<std::uint16_t> number;  // of the communicator, where gradients travel
  std::unique_ptr<Communicator> communicator;
  std::optional<ModelAverage> average;  // where parameters do
  std::unique_ptr<SparseGradients> sparse;
  std::unique_ptr<Compressor> compressor;
  std::unique_ptr<GradientReducer> reducer;
  CollectiveRegistry::Explanation explanation;
  std::unique_ptr<GradientBuckets> gradients;
  std::unique_ptr<BucketOptimizer> buckets;
  std::size_t packed_before = 0, sent_before = 0;  // by what build() replaced
  std::int64_t steps_alone = 0;                    // since the last average
  std::size_t bucket_bytes = options.buckets.bytes;  // of the plan in use
  std::vector<std::size_t> order;  // in which gradients are expected; empty: not yet known
  std::optional<Autotuner> tuner;
  std::int64_t step_ended_ns = 0;
  bool planned_again = false;
  bool synchronized = false;
  bool joining = false, divide_by_all = false;  // see train/join.h
  double norm = std::numeric_limits<double>::quiet_NaN();
};

DistributedOptimizer::DistributedOptimizer(Session& session, torch::optim::Optimizer& optimizer,
                                           const NamedParameters& parameters,
                                           DistributedOptimizerOptions options)
    : impl_(std::make_unique<Impl>(session, optimizer, parameters, options)) {}

DistributedOptimizer::~DistributedOptimizer() = default;

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
  torch::Tensor loss;
  if (closure)
    loss = impl_->step(closure);
  else
    impl_->step();
  impl_->average_where_due();
  impl_->time_step();
  return loss;
}

void DistributedOptimizer::average_parameters() {
  impl_->average_parameters();
}
void DistributedOptimizer::average_state() {
  if (impl_->joining) throw UserError("average_state() cannot be called inside a Join");
  if (impl_->average) impl_->average->average(impl_->inner);
}

std::optional<TunedPlan> DistributedOptimizer::tuned() const {
  const auto& tuner = impl_->tuner;
  if (!tuner || !tuner->finished()) return std::nullopt;
  return TunedPlan{tuner->current(), tuner->milliseconds(), tuner->default_milliseconds(), tuner->steps()};
}

double DistributedOptimizer::gradient_norm() const {
  return impl_->norm;
}
std::size_t DistributedOptimizer::gradient_bytes() const {
  return impl_->reducer->bucket_bytes();
}
std::size_t DistributedOptimizer::packed_bytes() const {
  return impl_->packed_bytes();
}
std::size_t DistributedOptimizer::sent_bytes() const {
  return impl_->sent_bytes();
}
Compressor& DistributedOptimizer::compressor() {
  return *impl_->compressor;
}
torch::optim::Optimizer& DistributedOptimizer::inner() {
  return impl_->inner;
}

}  // namespace farandole
