#include "farandole/train/optimizer/parameter_averaging.h"

#include <cstring>
#include <map>
#include <string>
#include <torch/utils.h>

#include "farandole/train/tensor_bytes.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

// Returns the concatenated texts of all ranks.
std::string gather(TensorCollectives& ranks, const std::string& text) {
  auto own = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  const auto all = ranks.all_gather(own);
  return {static_cast<const char*>(all.data_ptr()), static_cast<std::size_t>(all.numel())};
}

// Returns all tensors that any rank has, by name. Tensors that this rank does not have are zeros.
std::map<std::string, Tensor> union_of(const NamedTensors& own, const std::string& tables) {
  std::map<std::string, Tensor> all(own.begin(), own.end());
  for (auto& [name, zeros] : zeros_from(tables)) all.try_emplace(name, zeros);
  return all;
}

}  // namespace

void ParameterAveraging::average(std::vector<Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  for (auto& tensor : parameters) {
    ranks().allreduce("average of parameters", tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                      dtype_of(tensor), ReduceOp::average);
    sent_bytes_ += bytes_of(tensor);
  }
  steps_alone_ = 0;
}

bool ParameterAveraging::average_of_stepped(FlatBuckets& buckets, Joining& joining, bool active) {
  const torch::NoGradGuard no_grad;
  const bool stepped = steps_alone_ > 0;
  const auto there = joining.count(active, stepped);
  if (there.contributing == 0) return there.active > 0;
  auto& parameters = buckets.writable_parameters();
  for (auto& flat : parameters) {
    if (!stepped) flat.zero_();
    if (stepped && there.contributing < ranks_.size()) flat.mul_(ranks_.size() / double(there.contributing));
  }
  average(parameters);
  return there.active > 0;
}

void ParameterAveraging::average_state(torch::optim::Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  const auto names = numbered_parameters(optimizer);
  const auto own = export_optimizer_state(optimizer, names);
  auto state = union_of(own, gather(ranks_, table_of(own)));
  for (auto& [name, value] : state)
    ranks_.allreduce_(value, torch::isFloatingType(value.scalar_type()) ? ReduceOp::average : ReduceOp::max);
  import_optimizer_state(optimizer, names, {state.begin(), state.end()});
}

StopVote::StopVote(std::unique_ptr<TracedCommunicator> ranks, Timeline& timeline) : ranks_(std::move(ranks)) {
  constexpr auto name = "vote to stop";
  if (auto* const nonblocking = ranks_->nonblocking_allreduce())
    round_ = reduce_from_caller(
        [=, this](std::size_t) { nonblocking->start(name, &vote_, 1, DType::int32, ReduceOp::max); },
        *nonblocking, timeline);
  else
    round_ = reduce_on_thread(
        [=, this](std::size_t) { ranks_->allreduce(name, &vote_, 1, DType::int32, ReduceOp::max); }, *ranks_,
        timeline);
  round_->push();
}

void StopVote::next(bool stop) {
  round_->await(1);
  stopping_ = vote_ != 0;
  round_->restart();
  vote_ = stop ? 1 : 0;
  round_->push();
}

}  // namespace farandole
