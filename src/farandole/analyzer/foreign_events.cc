#include "farandole/analyzer/foreign_events.h"

#include <array>
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

// Annotations that PyTorch makes itself, and those that its users make most.
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

ForeignMeaning meaning_of(const TraceSpan& span) {
  const auto category = span.category_text;
  if (category == "kernel" || category == "Kernel") return {false, Category::gpu_kernel, {}};
  if (category == "gpu_memset" || category == "Memcpy" || category == "Memset")
    return {false, Category::gpu_memcpy, {}};
  if (category == "gpu_user_annotation") return {true, Category::other, {}};
  if (const auto step = number_behind(span.name, "ProfilerStep#")) return {false, Category::step, step};
  return {false, phase_of_annotation(span.name), {}};
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
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 11> sizes = {{{"Float", 4},
                                                                                        {"Half", 2},
                                                                                        {"BFloat16", 2},
                                                                                        {"Double", 8},
                                                                                        {"Int", 4},
                                                                                        {"Long", 8},
                                                                                        {"Byte", 1},
                                                                                        {"Char", 1},
                                                                                        {"Bool", 1},
                                                                                        {"Short", 2},
                                                                                        {"ComplexFloat", 8}}};
  for (const auto& [name, bytes] : sizes)
    if (name == dtype) return bytes;
  return 0;
}

}  // namespace farandole
