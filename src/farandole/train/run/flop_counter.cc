#include "farandole/train/run/flop_counter.h"

#include <ATen/core/Tensor.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <c10/core/GradMode.h>
#include <mutex>
#include <string_view>
#include <utility>

namespace farandole {

struct FlopCounter::Counts {
  std::mutex mutex;
  std::map<c10::ScalarType, double> by_type;
};

namespace {

using at::Tensor;
using Inputs = c10::ArrayRef<const c10::IValue>;

struct Work {
  double flops = 0;
  c10::ScalarType type = c10::ScalarType::Float;
};

double elements_of(const Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

// Of matrices, batches of them, or a matrix and a vector.
Work product(const Tensor& a, const Tensor& b) {
  return {2 * elements_of(a) * (b.dim() > 1 ? static_cast<double>(b.size(-1)) : 1), a.scalar_type()};
}

// Places on which a kernel is put, of all samples. `at` is where the inputs begin: input, weight,
// bias, stride, …
double places(Inputs in, std::size_t at) {
  const auto &input = in[at].toTensor(), &weight = in[at + 1].toTensor();
  const auto numbers = [&](std::size_t which, std::int64_t d) {
    const auto list = in[at + which].toIntVector();
    return list[std::min(static_cast<std::size_t>(d), list.size() - 1)];
  };
  auto result = static_cast<double>(input.size(0));
  const bool transposed = in[at + 6].toBool();
  for (std::int64_t d = 0; d < input.dim() - 2; ++d) {
    const auto size = input.size(d + 2), reach = numbers(5, d) * (weight.size(d + 2) - 1) + 1;
    result *= static_cast<double>(transposed ? size : (size + 2 * numbers(4, d) - reach) / numbers(3, d) + 1);
  }
  return result;
}

Work convolution(Inputs in) {
  const auto& weight = in[1].toTensor();
  return {2 * places(in, 0) * elements_of(weight), weight.scalar_type()};
}

// The gradients of the input and of the weight, if they are asked for.
Work convolution_backward(Inputs in) {
  const auto& weight = in[2].toTensor();
  const auto wanted = in[10].toBoolList();
  return {2 * places(in, 1) * elements_of(weight) * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0)),
          weight.scalar_type()};
}

// Scores, and sums of the values with them. `at` is where query, key and value begin.
Work attention(Inputs in, std::size_t at) {
  const auto &query = in[at].toTensor(), &key = in[at + 1].toTensor(), &value = in[at + 2].toTensor();
  const auto rows = elements_of(query) / static_cast<double>(query.size(-1));
  return {2 * rows * static_cast<double>(key.size(-2) * (query.size(-1) + value.size(-1))),
          query.scalar_type()};
}

// Each position of the sequences is multiplied by all matrices.
Work recurrent(Inputs in, std::size_t first, std::size_t last) {
  const auto& input = in[0].toTensor();
  double elements = 0;
  const auto add = [&](const Tensor& weight) { elements += weight.dim() > 1 ? elements_of(weight) : 0; };
  for (auto i = first; i <= last; ++i) {
    if (in[i].isTensor()) add(in[i].toTensor());
    if (in[i].isTensorList())
      for (const auto& weight : in[i].toTensorVector()) add(weight);
  }
  return {2 * elements_of(input) / static_cast<double>(input.size(-1)) * elements, input.scalar_type()};
}

Work twice(Work work) {
  return {2 * work.flops, work.type};
}

Work work_of(std::string_view name, Inputs in) {
  constexpr std::array products{"aten::mm", "aten::bmm", "aten::mv"};
  constexpr std::array sums{"aten::addmm",    "aten::addmm_", "aten::baddbmm",
                            "aten::baddbmm_", "aten::addbmm", "aten::addbmm_",
                            "aten::addmv",    "aten::addmv_", "aten::_addmm_activation"};
  const auto is_one_of = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (is_one_of(products)) return product(in[0].toTensor(), in[1].toTensor());
  if (is_one_of(sums)) return product(in[1].toTensor(), in[2].toTensor());
  if (name == "aten::convolution") return convolution(in);
  if (name == "aten::convolution_backward") return convolution_backward(in);
  // Those of cuDNN, of flash and memory-efficient attention, and of CPUs. The last resort calls bmm.
  if (name.starts_with("aten::_scaled_dot_product_") &&
      !name.starts_with("aten::_scaled_dot_product_attention"))
    return name.ends_with("_backward") ? twice(attention(in, 1)) : attention(in, 0);
  if (name == "aten::_cudnn_rnn") return recurrent(in, 1, 1);
  if (name == "aten::_cudnn_rnn_backward") return twice(recurrent(in, 1, 1));
  if (name == "aten::mkldnn_rnn_layer") return recurrent(in, 1, 4);
  if (name == "aten::mkldnn_rnn_layer_backward") return twice(recurrent(in, 1, 4));
  return {};
}

// LibTorch's callbacks are plain functions, so this is where they find the counter.
std::atomic<FlopCounter::Counts*> counting = nullptr;

// What a thread is doing: whether it is in a function of a backward pass, whether this pass can itself be
// differentiated, and the operator of ours that it is in.
enum class Backward { no, last, with_graph };
thread_local Backward in_backward = Backward::no;
thread_local Work* in_operator = nullptr;

struct EarlierBackward final : at::ObserverContext {
  Backward value = in_backward;
};
struct OpenOperator final : at::ObserverContext {
  Work work;
};

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& call) {
  const bool with_graph = c10::GradMode::is_enabled();
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto earlier = std::make_unique<EarlierBackward>();
    in_backward = with_graph ? Backward::with_graph : Backward::last;
    return earlier;
  }
  // Whoever repeats forward work within a backward pass builds a new graph there.
  if (in_backward == Backward::last && with_graph) return nullptr;
  const auto work = work_of(call.name(), call.inputs());
  if (work.flops == 0) return nullptr;
  if (in_operator != nullptr) {  // as with mixed precision, which calls the operator again on rounded factors
    in_operator->type = work.type;
    return nullptr;
  }
  auto open = std::make_unique<OpenOperator>();
  open->work = work;
  in_operator = &open->work;
  return open;
}

void operator_ends(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr) return;
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    in_backward = static_cast<EarlierBackward*>(context)->value;
    return;
  }
  in_operator = nullptr;
  const auto& work = static_cast<OpenOperator*>(context)->work;
  if (auto* const counts = counting.load(); counts != nullptr) {
    const std::lock_guard lock(counts->mutex);
    counts->by_type[work.type] += work.flops;
  }
}

}  // namespace

FlopCounter::FlopCounter() : counts_(std::make_unique<Counts>()) {
  Counts* nobody = nullptr;
  if (!counting.compare_exchange_strong(nobody, counts_.get())) return;
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&operator_begins, &operator_ends)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

FlopCounter::~FlopCounter() {
  if (callback_ == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(callback_);
  counting = nullptr;
}

double FlopCounter::flops() const {
  const std::lock_guard lock(counts_->mutex);
  double sum = 0;
  for (const auto& [type, flops] : counts_->by_type) sum += flops;
  return sum;
}

c10::ScalarType FlopCounter::type() const {
  const std::lock_guard lock(counts_->mutex);
  const auto most =
      std::ranges::max_element(counts_->by_type, {}, [](const auto& each) { return each.second; });
  return most == counts_->by_type.end() ? c10::ScalarType::Float : most->first;
}

}  // namespace farandole
