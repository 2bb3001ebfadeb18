#include "farandole/train/optimizer/gradient_synchronizer.h"

#include <cmath>
#include <torch/utils.h>

#include "farandole/comm/communicator.h"
#include "farandole/fusion/half_compressor.h"
#include "farandole/fusion/top_k_compressor.h"
#include "farandole/train/internals.h"
#include "farandole/train/optimizer/powersgd_compressor.h"

namespace farandole {
namespace {

std::unique_ptr<Compressor> make_compressor(const Compression& compression,
                                            const std::vector<TensorSpec>& tensors) {
  switch (compression.kind) {
    case Compression::Kind::none:
      break;
    case Compression::Kind::float16:
      return std::make_unique<HalfCompressor>(DType::float16);
    case Compression::Kind::bfloat16:
      return std::make_unique<HalfCompressor>(DType::bfloat16);
    case Compression::Kind::powersgd:
      return std::make_unique<PowerSgdCompressor>(tensors, compression.rank);
    case Compression::Kind::top_k:
      return std::make_unique<TopKCompressor>(tensors, compression.fraction);
  }
  return std::make_unique<PlainCompressor>();
}

}  // namespace

GradientSynchronizer::GradientSynchronizer(Session& session, std::unique_ptr<TracedCommunicator> ranks,
                                           const TrainedParameters& dense, const TrainedParameters& sparse,
                                           const DistributedOptimizerOptions& options)
    : session_(session),
      options_(options),
      parameters_(dense.tensors),
      number_(ranks != nullptr ? std::optional(ranks->number()) : std::nullopt),
      communicator_(ranks != nullptr ? std::unique_ptr<Communicator>(std::move(ranks))
                                     : std::make_unique<SoloCommunicator>()),
      compressor_(make_compressor(options.compression, dense.specs())),
      sparse_(*communicator_, sparse.names, sparse.tensors) {}

void GradientSynchronizer::use(BucketPlan plan) {
  if (reducer_ != nullptr) {
    packed_before_ += buckets_->packed_bytes();
    sent_before_ += reducer_->sent_bytes();
  }
  buckets_.reset();
  explanation_.reset();
  reducer_.reset();
  const bool compresses = options_.compression.kind != Compression::Kind::none;
  reducer_ = std::make_unique<GradientReducer>(
      *communicator_, std::move(plan), options_.average ? ReduceOp::average : ReduceOp::sum,
      session_.timeline(), compresses ? compressor_.get() : nullptr, options_.stop_requested);
  if (number_)
    explanation_ = session_.internals().calls.explain(
        *number_, [this](std::string_view collective) { return reducer_->explain(collective); });
  buckets_ = std::make_unique<GradientBuckets>(*reducer_, parameters_, options_.backward_passes_per_step);
}

void GradientSynchronizer::finish(const std::function<void(std::size_t)>& reduced) {
  buckets_->finish(reduced);
  reduce_sparse();
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

double GradientSynchronizer::norm() const {
  return std::hypot(buckets_->norm(), sparse_.norm());
}

void GradientSynchronizer::scale(double factor) {
  if (factor == 1) return;
  const torch::NoGradGuard no_grad;
  for (auto gradients : flat()) gradients.mul_(factor);
  sparse_.scale(factor);
}

void GradientSynchronizer::scale_sparse(double factor) {
  if (factor != 1) sparse_.scale(factor);
}

}  // namespace farandole
