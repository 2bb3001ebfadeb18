// The gradients of farandole/capi.h.
#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/capi.h"
#include "farandole/capi/process_job.h"
#include "farandole/capi/reducer_handle.h"
#include "farandole/comm/agreement.h"
#include "farandole/fusion/compression.h"

namespace farandole::capi {
namespace {

void check_same_reduction(Communicator& ranks, const ReducerHandle::Options& options) {
  const auto here = fmt::format("the {} as {}", name_of(options.op),
                                options.compressed ? name_of(*options.compressed) : "they are");
  std::string each;
  for (const auto& line : find_disagreements(ranks, "reduction of gradients", here))
    for (const auto& [text, where] : line.variants)
      each += fmt::format("{}{} on {}", each.empty() ? "" : ", ", text, describe_ranks(where));
  if (!each.empty())
    throw UserError("the ranks reduce gradients in different ways: " + each +
                    "; pass the same operation and compression on every rank");
}

}  // namespace

// With compression, the bits of the result depend on the plan, and a resumed run would make a new one.
ReducerHandle::ReducerHandle(Job& job, std::unique_ptr<TracedCommunicator> ranks,
                             const std::vector<TensorSpec>& tensors, const Options& options)
    : job_(job),
      ranks_(std::move(ranks)),
      options_(options),
      planner_(*ranks_, tensors, {.sizes = options.sizes, .keep_order = options.compressed.has_value()}) {
  check_plan_agreement(*ranks_, planner_.plan());
  check_same_reduction(*ranks_, options_);
  use_planned_buckets();
}

void ReducerHandle::use_planned_buckets() {
  explanation_.reset();
  reducer_.reset();
  reducer_ =
      std::make_unique<HostReducer>(*ranks_, planner_.plan(), options_.op, job_.timeline(),
                                    HostReducerOptions{.compressed = options_.compressed,
                                                       .stop_requested = [this] { return has_steps_.load(); },
                                                       .reduced_by = ReducedBy::thread,
                                                       .finds_nonfinite = false});
  explanation_ = job_.calls().explain(
      ranks_->number(), [this](std::string_view collective) { return reducer_->explain(collective); });
}

bool ReducerHandle::replan() {
  const bool changed = planner_.reconsider(reducer_->first_order());
  if (changed) use_planned_buckets();
  return changed;
}

std::int64_t ReducerHandle::join() {
  has_steps_ = false;
  std::int64_t steps = 0;
  for (reducer_->finish(); reducer_->stopping(); reducer_->finish()) ++steps;
  has_steps_ = true;
  return steps;
}

namespace {

ReducerHandle& reducer_of(void* reducer) {
  need_job();  // fdl_close() ends the reducers.
  if (reducer == nullptr)
    throw UserError("the reducer is NULL: this rank is not in it; call its functions on its ranks only");
  return *static_cast<ReducerHandle*>(reducer);
}

std::size_t tensor_of(ReducerHandle& reducer, int tensor) {
  const auto index = static_cast<std::size_t>(tensor);
  const auto tensors = reducer.reducer().plan().tensors.size();
  if (index < tensors) return index;
  throw UserError(fmt::format("the reducer has no tensor {}; it has {} tensors", tensor, tensors));
}

std::vector<TensorSpec> specs_of(int tensors, const char* const* names, const int* dtypes,
                                 const int* dimensions, const int64_t* shapes) {
  if (tensors < 0) throw UserError(fmt::format("a reducer cannot have {} tensors; give 0 or more", tensors));
  std::vector<TensorSpec> specs;
  for (int i = 0; i < tensors; shapes += dimensions[i++]) {
    const auto type = dtype_of(dtypes[i]);
    if (!type) throw UserError(std::string(names[i]) + " has no element type of fdl_dtype");
    specs.push_back({names[i], {shapes, shapes + dimensions[i]}, *type});
    auto bytes = static_cast<std::int64_t>(size_of(*type));
    for (const auto size : specs.back().shape)
      if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
        throw UserError(fmt::format("{} needs sizes of 0 or more, and less than 2^63 bytes", names[i]));
  }
  return specs;
}

ReducerHandle::Options options_of(int op, const char* compression, std::size_t bucket_bytes) {
  if (op != FDL_SUM && op != FDL_AVERAGE)
    throw UserError(
        fmt::format("gradients cannot be reduced with operation {}; use FDL_SUM or FDL_AVERAGE", op));
  const auto kind = parse_compression(compression);
  if (kind.kind == Compression::Kind::between_nodes)
    throw UserError(fmt::format("compression '{}' is of C++ programs only; use bfloat16", compression));
  ReducerHandle::Options options{static_cast<ReduceOp>(op), sent_as(kind), {}};
  if (bucket_bytes != 0) options.sizes.bytes = bucket_bytes;
  return options;
}

ReducerHandle* make_reducer(const int* ranks, int count, const std::vector<TensorSpec>& specs,
                            const ReducerHandle::Options& options) {
  auto& own = need_job();
  auto communicator = own.communicator_of(ranks, count);
  if (communicator == nullptr) return nullptr;
  return own.reducers
      .emplace_back(std::make_unique<ReducerHandle>(own.job, std::move(communicator), specs, options))
      .get();
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;
using capi::attempt;

int fdl_reducer(const int* ranks, int count, int tensors, const char* const* names, const int* dtypes,
                const int* dimensions, const int64_t* shapes, int op, const char* compression,
                size_t bucket_bytes, void** reducer) {
  return attempt([&] {
    const auto specs = capi::specs_of(tensors, names, dtypes, dimensions, shapes);
    *reducer = capi::make_reducer(ranks, count, specs, capi::options_of(op, compression, bucket_bytes));
  });
}

void fdl_reducer_free(void* reducer) {
  if (auto* const own = capi::running(); own != nullptr)
    std::erase_if(own->reducers, [&](const auto& one) { return one.get() == reducer; });
}

void* fdl_reducer_data(void* reducer, int tensor) {
  void* data = nullptr;
  attempt([&] {
    auto& own = capi::reducer_of(reducer);
    data = own.reducer().data(capi::tensor_of(own, tensor));
  });
  return data;
}

int fdl_reducer_ready(void* reducer, int tensor) {
  return attempt([&] {
    auto& own = capi::reducer_of(reducer);
    own.reducer().mark_ready(capi::tensor_of(own, tensor));
  });
}

int fdl_reducer_finish(void* reducer) {
  return attempt([&] { capi::reducer_of(reducer).reducer().finish(); });
}

int fdl_reducer_present(void* reducer, int tensor) {
  int present = 0;
  attempt([&] {
    auto& own = capi::reducer_of(reducer);
    present = own.reducer().present(capi::tensor_of(own, tensor)) ? 1 : 0;
  });
  return present;
}

int fdl_reducer_replan(void* reducer, int* changed) {
  return attempt([&] { *changed = capi::reducer_of(reducer).replan() ? 1 : 0; });
}

int fdl_reducer_join(void* reducer, int64_t* steps) {
  return attempt([&] { *steps = capi::reducer_of(reducer).join(); });
}
