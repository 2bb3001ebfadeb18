// What other tools' names and categories mean in our vocabulary. Plain functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

struct ForeignMeaning {
  bool ignored = false;  // says nothing: see is_ignored()
  Category category = Category::other;
  std::optional<std::int64_t> step = std::nullopt;
  bool only_outermost = false;      // the category counts only where no other phase is around the span
  std::string_view operation = {};  // of a collective that a thread of the host executes: "all_reduce"
};

// Of a span whose category is none of ours: PyTorch's profiler (kernels, copies, operators, ProfilerStep#,
// its own annotations, Gloo's collectives).
ForeignMeaning meaning_of(const TraceSpan& span);

// Repetitions of what is there already, and calls of the GPU's driver.
bool is_ignored(std::string_view category);

// A kernel of NCCL, RCCL or MSCCL, by its name.
bool is_collective_kernel(std::string_view name);
// "allreduce", "allgather", … from a kernel's name; "" where it does not say.
std::string_view operation_of_kernel(std::string_view name);
// Of PyTorch's names of element types; 0 for one that is not known.
std::uint64_t bytes_of_dtype(std::string_view dtype);

}  // namespace farandole
