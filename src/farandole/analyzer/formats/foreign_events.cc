#include "farandole/analyzer/formats/foreign_events.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "farandole/base/parse_number.h"

namespace farandole {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<std::int64_t> number_behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return parse_number<std::int64_t>(text.substr(prefix.size()));
}

// Threads of these libraries execute collectives. For NCCL, such an annotation is only the launch.
std::string_view operation_on_host(std::string_view name) {
  for (const std::string_view library : {"gloo:", "mpi:", "ucc:"})
    if (name.starts_with(library)) return name.substr(library.size());
  return "";
}

// Operators of autograd belong to backward, and so does DDP's work after the last gradient. Other operators
// outside backward, optimizer and data loader belong to the model and its loss.
ForeignMeaning meaning_of_operator(std::string_view name) {
  if (name.starts_with("autograd::engine::evaluate_function: ") ||
      name.starts_with("torch.distributed.ddp.reducer::"))
    return {.category = Category::backward};
  if (name.starts_with("aten::")) return {.category = Category::forward, .only_outermost = true};
  return {};
}

// Annotations that PyTorch itself writes, and common annotations of its users.
Category phase_of_annotation(std::string_view name) {
  if (name.starts_with("Optimizer.")) return Category::optimizer;
  if (name.starts_with("enumerate(DataLoader)")) return Category::data;
  if (name == "DistributedDataParallel.forward" || name == "forward" || name == "## forward ##")
    return Category::forward;
  if (name == "backward" || name == "## backward ##") return Category::backward;
  if (name == "optimizer" || name == "## optimizer ##") return Category::optimizer;
  return Category::other;
}

}  // namespace

bool is_ignored(std::string_view category) {
  static constexpr std::array<std::string_view, 9> ignored = {
      "cuda_runtime", "gpu_user_annotation", "python_function",
      "cuda_driver",  "cuda_sync",           "overhead",
      "Runtime",      "privateuse1_runtime", "Trace"};
  return std::find(ignored.begin(), ignored.end(), category) != ignored.end();
}

ForeignMeaning meaning_of(const TraceSpan& span) {
  const auto category = span.category_text;
  if (category == "kernel" || category == "Kernel") return {.category = Category::gpu_kernel};
  if (category == "gpu_memset" || category == "Memcpy" || category == "Memset")
    return {.category = Category::gpu_memcpy};
  if (is_ignored(category)) return {.ignored = true};
  if (const auto operation = operation_on_host(span.name); !operation.empty())
    return {.category = Category::communication, .operation = operation};
  if (category == "cpu_op") return meaning_of_operator(span.name);
  if (const auto step = number_behind(span.name, "ProfilerStep#"))
    return {.category = Category::step, .step = step};
  return {.category = phase_of_annotation(span.name)};
}

bool is_collective_kernel(std::string_view name) {
  return name.starts_with("nccl") || contains(name, "ncclKernel") || contains(name, "ncclDevKernel") ||
         contains(name, "rcclKernel") || contains(name, "mscclKernel");
}

std::string_view operation_of_kernel(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> operations = {
      {{"AllReduce", "allreduce"},
       {"AllGather", "allgather"},
       {"ReduceScatter", "reducescatter"},
       {"Broadcast", "broadcast"},
       {"SendRecv", "sendrecv"},
       {"AllToAll", "alltoall"},
       {"Reduce", "reduce"}}};
  for (const auto& [part, operation] : operations)
    if (contains(name, part)) return operation;
  return "";
}

std::uint64_t bytes_of_dtype(std::string_view dtype) {
  struct Size {
    std::uint64_t bytes;
    std::string_view names;  // Names in c10d and in the profiler's "Input type".
  };
  static constexpr std::array<Size, 4> sizes = {
      {{1, " Byte Char Bool Float8_e4m3fn Float8_e5m2 unsigned_char signed_char bool "},
       {2, " Half BFloat16 Short c10::Half c10::BFloat16 short "},
       {4, " Float Int float int "},
       {8, " Double Long ComplexFloat double long long_int c10::complex<float> "}}};
  std::string word = " ";
  for (const char c : dtype) word += c == ' ' ? '_' : c;
  word += ' ';
  for (const auto& [bytes, names] : sizes)
    if (contains(names, word)) return bytes;
  return 0;
}

}  // namespace farandole
