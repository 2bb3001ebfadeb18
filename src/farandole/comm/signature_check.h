// What a rank asks of a collective, so that ranks which ask different things are told so instead of hanging.
// Plain values, usable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"

namespace farandole {

enum class Operation : std::uint8_t { allreduce, all_gather, broadcast, reduce_scatter, all_to_all };
std::string_view name_of(Operation operation);

// One call of a collective as all its ranks must agree on it: two ranks make the same call when their
// descriptors are equal byte by byte. Lies in shared memory and travels in messages as it is.
struct CallDescriptor {
  std::uint64_t sequence = 0;  // the communicator's calls before this one
  std::uint64_t count = 0;     // elements of a reduction; bytes of other operations, over all ranks
  std::uint64_t shares = 0;    // hash of the parts by rank, where an operation has them
  std::int32_t root = -1;      // of a broadcast
  Operation operation = Operation::allreduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t unused = 0;
  char name[80] = {};  // ends with 0; a longer one keeps its two ends

  bool operator==(const CallDescriptor&) const = default;
};
static_assert(sizeof(CallDescriptor) <= 128 && std::has_unique_object_representations_v<CallDescriptor>);

CallDescriptor allreduce_call(std::string_view name, std::size_t count, DType dtype, ReduceOp op);
CallDescriptor all_gather_call(std::string_view name, std::span<const std::size_t> bytes_by_rank);
CallDescriptor broadcast_call(std::string_view name, std::size_t bytes, int root);
CallDescriptor reduce_scatter_call(std::string_view name, std::span<const std::size_t> count_by_rank,
                                   DType dtype, ReduceOp op);
// Its sizes are each rank's own.
CallDescriptor all_to_all_call(std::string_view name);

// Of the whole descriptor (XXH3).
std::uint64_t hash_of(const CallDescriptor& call);

// The message for UserError where the calls of a communicator's ranks are not all equal: a first line, then a
// line for each value of each field in which they differ, with the ranks that have it. ranks[i] is what the
// table calls the rank of by_rank[i]: its rank in the job; i, where `ranks` is empty.
std::string describe_mismatch(std::span<const CallDescriptor> by_rank, std::span<const int> ranks = {});

}  // namespace farandole
