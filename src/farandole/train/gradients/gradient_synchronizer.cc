#include "farandole/train/gradients/gradient_synchronizer.h"

#include <cmath>
#include <torch/utils.h>

#include "farandole/comm/communicator.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/fusion/host_reducer.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/tensor_bytes.h"

namespace farandole {
namespace {

// Sets `number` to that of the device's communicator, which takes the place of `ranks`.
std::unique_ptr<BucketDevice> make_device(Session& session, Communicator& ranks,
                                          const DistributedOptimizerOptions& options,
                                          std::optional<std::uint16_t>& number) {
  auto& internals = session.internals();
  if (!internals.gpu) return nullptr;
  const bool matters = options.loss_scaling || options.on_nonfinite != OnNonFinite::update;
  const auto of_device = internals.device_options(options.group);
  if (number) number = of_device.number;
  return make_gpu_buckets(ranks, *internals.gpu, of_device, matters ? FindNonfinite::yes : FindNonfinite::no);
}

}  // namespace

GradientSynchronizer::GradientSynchronizer(Session& session, std::unique_ptr<TracedCommunicator> ranks,
                                           const TrainedParameters& dense, const TrainedParameters& sparse,
                                           const DistributedOptimizerOptions& options)
    : session_(session),
      options_(options),
      parameters_(dense.tensors),
      sparse_names_(sparse.names),
      number_(ranks != nullptr ? std::optional(ranks->number()) : std::nullopt),
      communicator_(ranks != nullptr ? std::unique_ptr<Communicator>(std::move(ranks))
                                     : std::make_unique<SoloCommunicator>()),
      // Dense gradients carry the request with their last bucket.
      sparse_(*communicator_, sparse.names, sparse.tensors,
              dense.tensors.empty() ? options.stop_requested : std::function<bool()>()),
      device_(make_device(session, *communicator_, options, number_)) {}

void GradientSynchronizer::use(BucketPlan plan, NodeSharing* sharing, Divided divided) {
  DeviceReducer::Unreported unreported;
  if (reducer_ != nullptr) {
    if (on_device()) unreported = device_reducer_->retire();
    packed_before_ += buckets_->packed_bytes();
    sent_before_ += reducer_->sent_bytes();
  }
  buckets_.reset();
  explanation_.reset();
  reducer_.reset();
  const auto op = options_.average ? ReduceOp::average : ReduceOp::sum;
  if (device_ != nullptr) {
    auto reducer = std::make_unique<DeviceReducer>(*device_, std::move(plan), op, session_.timeline(),
                                                   options_.stop_requested, divided);
    reducer->report_later(unreported);
    device_reducer_ = reducer.get();
    reducer_ = std::move(reducer);
  } else {
    auto reducer =
        std::make_unique<HostReducer>(*communicator_, std::move(plan), op, session_.timeline(),
                                      HostReducerOptions{.compressed = sent_as(options_.compression),
                                                         .stop_requested = options_.stop_requested,
                                                         .sharing = sharing});
    host_reducer_ = reducer.get();
    reducer_ = std::move(reducer);
  }
  if (number_)
    explanation_ = session_.internals().calls().explain(
        *number_, [this](std::string_view collective) { return reducer_->explain(collective); });
  buckets_ = std::make_unique<GradientBuckets>(*reducer_, device_reducer_, parameters_,
                                               options_.backward_passes_per_step);
}

void GradientSynchronizer::finish(const std::function<void(std::size_t)>& reduced) {
  in_parts_ = device_reducer_ != nullptr && device_reducer_->is_divided();
  buckets_->finish(reduced);
  reduce_sparse();
  session_.internals().calls().count_step();
}

// A rank that averages parameters is alone in its communicator.
int GradientSynchronizer::rank_of_job(std::size_t rank) const {
  if (!number_) return session_.rank();
  return options_.group ? options_.group->ranks()[rank] : static_cast<int>(rank);
}

// Tensors with sparse gradients are numbered behind the others. The gradient that backward produced first is
// the nearest one to the cause, because NaNs spread to all gradients behind it.
NonFiniteGradient GradientSynchronizer::find_nonfinite() {
  const auto dense = plan().tensors.size();
  const auto number = [&](const std::optional<std::size_t>& of_dense,
                          const std::optional<std::size_t>& of_sparse) {
    return static_cast<std::int64_t>(of_dense ? *of_dense : dense + of_sparse.value_or(sparse_names_.size()));
  };
  const auto none = number({}, {});
  const auto own = number(reducer_->first_nonfinite_here(), sparse_.first_nonfinite_here());
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(communicator_->size));
  const std::vector<std::size_t> bytes(by_rank.size(), sizeof own);
  communicator_->all_gather("gradients that are not finite", &own, by_rank.data(), bytes);
  std::vector<int> ranks;
  auto first = none;
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    if (by_rank[r] == none) continue;
    if (ranks.empty()) first = by_rank[r];
    ranks.push_back(rank_of_job(r));
  }
  if (ranks.empty()) first = number(reducer_->first_nonfinite(), sparse_.first_nonfinite());
  const auto index = static_cast<std::size_t>(first);
  return {index < dense ? plan().tensors[index].name : sparse_names_[index - dense], std::move(ranks)};
}

bool GradientSynchronizer::clear() {
  const bool thrown_away = buckets_->clear();
  if (thrown_away) reduce_sparse();
  sparse_.clear();
  return thrown_away;
}

void GradientSynchronizer::collect() {
  for (std::size_t b = 0; b < flat().size(); ++b) buckets_->collect(b);
}

void GradientSynchronizer::gather() {
  if (!device_reducer_ || !device_reducer_->is_divided()) return;
  device_reducer_->gather();
  in_parts_ = false;
}

torch::Tensor GradientSynchronizer::norm_of_parts() const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms;
  for (std::size_t b = 0; b < flat().size(); ++b) {
    const auto [first, last] = device_reducer_->own_part(b);
    append_norms(elements(flat()[b], first, last - first), norms);
  }
  const auto sum =
      torch::from_blob(device_->number(), {}, torch::dtype(torch::kFloat64).device(flat().front().device()));
  sum.copy_(torch::cat(norms).square().sum());
  device_->sum_over_ranks("norm of the gradients");
  return sum.sqrt();
}

torch::Tensor GradientSynchronizer::norm() const {
  if (in_parts_) return norm_of_parts();
  const auto dense = buckets_->norm();
  if (sparse_names_.empty()) return dense;
  return torch::full({}, std::hypot(dense.item<double>(), sparse_.norm()), torch::kFloat64);
}

void GradientSynchronizer::scale(const GradientFactor& factor) {
  for (const auto& gradients : flat()) multiply(gradients, factor);
  if (const auto* const known = std::get_if<double>(&factor)) scale_sparse(*known);
}

void GradientSynchronizer::scale_sparse(double factor) {
  if (factor != 1) sparse_.scale(factor);
}

}  // namespace farandole
