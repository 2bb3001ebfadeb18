// Describes a collective call, so that ranks whose calls differ get an error message instead
// of hanging. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "farandole/base/dtype.h"
#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"

namespace farandole {

enum class Operation : std::uint8_t { allreduce, all_gather, broadcast, reduce_scatter, all_to_all };
std::string_view name_of(Operation operation);

// One call of a collective. Two ranks make the same call if their descriptors are equal byte by byte.
// Descriptors are stored in shared memory and sent in messages unchanged.
struct CallDescriptor {
  std::uint64_t sequence = 0;     // number of earlier calls of the communicator
  std::uint64_t elements = 0;     // of an allreduce or a reduce-scatter, of all ranks' parts together
  std::uint64_t bytes = 0;        // of a broadcast or an all-gather, of all ranks' parts together
  std::uint64_t shares_hash = 0;  // of the sizes of the ranks' parts, if the operation has parts
  std::int32_t root = -1;         // of a broadcast
  Operation operation = Operation::allreduce;
  DType dtype = DType::uint8;   // of a reduction
  ReduceOp op = ReduceOp::sum;  // of a reduction
  std::uint8_t wire = 0;        // Wire (comm/net/stream.h): how values travel between nodes
  char name[80] = {};           // ends with 0; of a longer name, both ends are kept

  bool operator==(const CallDescriptor&) const = default;
};
static_assert(sizeof(CallDescriptor) <= 128 && std::has_unique_object_representations_v<CallDescriptor>);

CallDescriptor allreduce_call(std::string_view name, std::size_t count, DType dtype, ReduceOp op);
CallDescriptor all_gather_call(std::string_view name, std::span<const std::size_t> bytes_by_rank);
CallDescriptor broadcast_call(std::string_view name, std::size_t bytes, int root);
CallDescriptor reduce_scatter_call(std::string_view name, std::span<const std::size_t> count_by_rank,
                                   DType dtype, ReduceOp op);
// The sizes are not compared, because each rank has its own.
CallDescriptor all_to_all_call(std::string_view name);

// The XXH3 hash of the whole descriptor.
std::uint64_t hash_of(const CallDescriptor& call);

// Thrown on every rank of a communicator whose ranks make different calls.
class CallMismatch : public UserError {
 public:
  using UserError::UserError;
};

// The message of the UserError for ranks whose calls differ. After the first line, it has one line for each
// value of each field that differs, with the ranks that have this value. ranks[i] is the rank in the job of
// by_rank[i]; if `ranks` is empty, this is i.
std::string describe_mismatch(std::span<const CallDescriptor> by_rank, std::span<const int> ranks = {});

// For ranks that know that their calls differ. `group` compares no calls.
// Throws: CallMismatch with describe_mismatch().
// Collective: every rank of the group must call this.
[[noreturn]] void report_mismatch(Communicator& group, const CallDescriptor& own, std::span<const int> ranks);

// Compares the sizes of an all-to-all: `arriving` is what the peers send to this rank. Returns the largest
// size of a message.
// Throws: UserError on all ranks, for the lowest sender and its lowest receiver whose sizes differ.
// Collective: every rank of the group must call this.
std::size_t compare_sizes(Communicator& group, std::string_view name, std::span<const std::size_t> send_bytes,
                          std::span<const std::size_t> arriving, std::span<const std::size_t> receive_bytes,
                          std::span<const int> ranks);

}  // namespace farandole
