// Maps names and categories of other tools to Farandole's event vocabulary. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "farandole/timeline/chrome_trace/trace_reader.h"

namespace farandole {

struct ForeignMeaning {
  bool ignored = false;  // See is_ignored().
  Category category = Category::other;
  std::optional<std::int64_t> step = std::nullopt;
  bool only_outermost = false;      // The category counts only if no other phase encloses the span.
  std::string_view operation = {};  // Operation of a collective that a host thread executes: "all_reduce".
};

// Maps a span whose category is not one of Farandole's, such as those of PyTorch's profiler: kernels, copies,
// operators, ProfilerStep#, its annotations, Gloo's collectives.
ForeignMeaning meaning_of(const TraceSpan& span);

// Returns true for events that repeat other events, and for calls of the GPU driver.
bool is_ignored(std::string_view category);

// Returns whether the name is that of an NCCL, RCCL or MSCCL kernel.
bool is_collective_kernel(std::string_view name);
// Returns "allreduce", "allgather", … from the name of a kernel; "" if the name does not contain it.
std::string_view operation_of_kernel(std::string_view name);
// `dtype` is PyTorch's name of an element type. Returns 0 if it is unknown.
std::uint64_t bytes_of_dtype(std::string_view dtype);

}  // namespace farandole
