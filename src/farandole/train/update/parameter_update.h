// Updates parameters from reduced gradients, bucket by bucket. There are three ways; update_choice.h chooses.
//
//             parameters     state of the optimizer    a rank updates    in memory of
//   whole     on each rank   on each rank              all of a bucket   a host or a GPU
//   node      once a node    once a node               its part          a host; node_update.h
//   divided   on each rank   once, in parts            its part          GPUs; divided_update.h
//
// Thread safety: call from the training thread only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <torch/types.h>
#include <utility>

#include "farandole/train/distributed_optimizer_options.h"
#include "farandole/train/torch_optimizers.h"
#include "farandole/train/update/flat_buckets.h"

namespace farandole {

// "Collective" is meant for the ranks that share or divide: if there are any, all of them must call the
// function in the same order.
class ParameterUpdate {
 public:
  explicit ParameterUpdate(FlatBuckets flat) : flat_(std::move(flat)) {}
  virtual ~ParameterUpdate() = default;
  ParameterUpdate(const ParameterUpdate&) = delete;
  ParameterUpdate& operator=(const ParameterUpdate&) = delete;

  // What update() needs: the bucket to be reduced; all buckets to be reduced; or the unreduced buckets of
  // all ranks, BucketGradients::by_rank.
  enum class Needs { bucket, all_buckets, buckets_of_ranks };
  virtual Needs needs() const { return Needs::bucket; }

  // A step consists of begin(), update() for the buckets, in order, and end(), also if some are left out.
  // Collective.
  virtual void begin() {}
  // As FlatBuckets::update(). Collective.
  virtual void update(std::size_t bucket, const BucketGradients& gradients,
                      const std::optional<torch::Tensor>& leave_out) {
    flat_.update(bucket, gradients, leave_out);
  }
  // Collective.
  virtual void end() {}

  // Calls `visit` for each parameter that has state, with the whole state. If its tensors are not those of
  // the inner optimizer, they are made for this call, those of one bucket at a time. Collective.
  virtual void visit_state(const VisitOptimizerState& visit) {
    visit_optimizer_state(flat_.rules().optimizer(), visit);
  }
  // Gives the inner optimizer the whole state until the next update, if it does not have it. Collective.
  virtual void gather_state() {}

  virtual Sharding sharding() const = 0;
  // From now on, a rank that shares its parameters has its own and updates all of them. If the ranks do not
  // `meet`, none of them may change parameters while others call this. Collective.
  virtual void stop_sharing(const std::string& /*why*/, bool /*meet*/) {}

  FlatBuckets& flat() { return flat_; }

 protected:
  FlatBuckets flat_;
};

}  // namespace farandole
