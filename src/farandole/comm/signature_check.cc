#include "farandole/comm/signature_check.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>
#include <xxhash.h>

#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"

namespace farandole {
namespace {

CallDescriptor call_of(Operation operation, std::string_view name) {
  CallDescriptor call;
  call.operation = operation;
  constexpr std::size_t most = sizeof call.name - 1;
  if (name.size() <= most) {
    name.copy(call.name, most);
    return call;
  }
  constexpr std::string_view gap = "...";
  constexpr std::size_t end = (most - gap.size()) / 2;
  constexpr std::size_t start = most - gap.size() - end;
  name.copy(call.name, start);
  gap.copy(call.name + start, gap.size());
  name.copy(call.name + start + gap.size(), end, name.size() - end);
  return call;
}

std::uint64_t total(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

bool reduces(const CallDescriptor& call) {
  return call.operation == Operation::allreduce || call.operation == Operation::reduce_scatter;
}

using Field = std::pair<const char*, std::function<std::string(const CallDescriptor&)>>;

// Fields in the order in which the message shows them; "-" if the operation has no such field.
const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"operation", [](const auto& call) { return std::string(name_of(call.operation)); }},
      {"name", [](const auto& call) { return fmt::format("'{}'", call.name); }},
      {"size",
       [](const auto& call) {
         if (call.operation == Operation::all_to_all) return std::string("-");
         return reduces(call) ? fmt::format("{} elements", call.elements)
                              : fmt::format("{} bytes", call.bytes);
       }},
      {"dtype",
       [](const auto& call) {
         return std::string(reduces(call) ? name_of(call.dtype) : std::string_view("-"));
       }},
      {"reduction",
       [](const auto& call) {
         return std::string(reduces(call) ? name_of(call.op) : std::string_view("-"));
       }},
      {"root",
       [](const auto& call) {
         return call.operation == Operation::broadcast ? std::to_string(call.root) : std::string("-");
       }},
      {"shares",
       [](const auto& call) {
         return call.shares_hash == 0 ? std::string("-") : fmt::format("hash {:016x}", call.shares_hash);
       }},
      {"on the wire", [](const auto& call) { return std::string(call.wire == 0 ? "exact" : "bfloat16"); }},
      {"call", [](const auto& call) { return fmt::format("number {}", call.sequence); }}};
  return all;
}

}  // namespace

std::string_view name_of(Operation operation) {
  constexpr std::string_view names[] = {"allreduce", "all_gather", "broadcast", "reduce_scatter",
                                        "all_to_all"};
  return names[static_cast<std::size_t>(operation)];
}

CallDescriptor allreduce_call(std::string_view name, std::size_t count, DType dtype, ReduceOp op) {
  auto call = call_of(Operation::allreduce, name);
  call.elements = count;
  call.dtype = dtype;
  call.op = op;
  return call;
}

CallDescriptor all_gather_call(std::string_view name, std::span<const std::size_t> bytes_by_rank) {
  auto call = call_of(Operation::all_gather, name);
  call.bytes = total(bytes_by_rank);
  call.shares_hash = XXH3_64bits(bytes_by_rank.data(), bytes_by_rank.size_bytes());
  return call;
}

CallDescriptor broadcast_call(std::string_view name, std::size_t bytes, int root) {
  auto call = call_of(Operation::broadcast, name);
  call.bytes = bytes;
  call.root = root;
  return call;
}

CallDescriptor reduce_scatter_call(std::string_view name, std::span<const std::size_t> count_by_rank,
                                   DType dtype, ReduceOp op) {
  auto call = call_of(Operation::reduce_scatter, name);
  call.elements = total(count_by_rank);
  call.shares_hash = XXH3_64bits(count_by_rank.data(), count_by_rank.size_bytes());
  call.dtype = dtype;
  call.op = op;
  return call;
}

CallDescriptor all_to_all_call(std::string_view name) {
  return call_of(Operation::all_to_all, name);
}

std::uint64_t hash_of(const CallDescriptor& call) {
  return XXH3_64bits(&call, sizeof call);
}

std::string describe_mismatch(std::span<const CallDescriptor> by_rank, std::span<const int> ranks) {
  const auto called = [&](std::size_t i) { return ranks.empty() ? static_cast<int>(i) : ranks[i]; };
  std::string table;
  for (const auto& [field, text_of] : fields()) {
    std::vector<std::pair<std::string, std::vector<int>>> values;  // in order of appearance
    for (std::size_t i = 0; i < by_rank.size(); ++i) {
      const auto text = text_of(by_rank[i]);
      auto found =
          std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == text; });
      if (found == values.end()) found = values.insert(values.end(), {text, {}});
      found->second.push_back(called(i));
    }
    // Fields on which all ranks agree are shown only if they help to find the call.
    if (values.size() < 2 && std::strcmp(field, "operation") != 0 && std::strcmp(field, "name") != 0)
      continue;
    for (auto& [text, who] : values) {
      std::sort(who.begin(), who.end());
      table += fmt::format("\n  {:<10} {:<12} {}", field,
                           values.size() < 2 ? "all ranks" : describe_ranks(who), text);
    }
  }
  return "the ranks make different calls of the same collective; every rank must make the same calls in the "
         "same order:" +
         table;
}

void report_mismatch(Communicator& group, const CallDescriptor& own, std::span<const int> ranks) {
  std::vector<CallDescriptor> by_rank(static_cast<std::size_t>(group.size));
  group.all_gather("differing calls", &own, by_rank.data(),
                   std::vector<std::size_t>(by_rank.size(), sizeof own));
  throw CallMismatch(describe_mismatch(by_rank, ranks));
}

std::size_t compare_sizes(Communicator& group, std::string_view name, std::span<const std::size_t> send_bytes,
                          std::span<const std::size_t> arriving, std::span<const std::size_t> receive_bytes,
                          std::span<const int> ranks) {
  const auto first = std::ranges::mismatch(arriving, receive_bytes).in1 - arriving.begin();
  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::int64_t least[2] = {first == group.size ? none : first * group.size + group.rank,
                           -static_cast<std::int64_t>(std::ranges::max(send_bytes))};
  group.allreduce(name, least, 2, DType::int64, ReduceOp::min);
  if (least[0] == none) return static_cast<std::size_t>(-least[1]);
  const auto from = static_cast<std::size_t>(least[0] / group.size),
             to = static_cast<std::size_t>(least[0] % group.size);
  std::uint64_t sizes[2] = {arriving[from], receive_bytes[from]};  // of the receiver, which knows both
  group.broadcast(name, sizes, sizeof sizes, static_cast<int>(to));
  throw UserError(fmt::format("all_to_all '{}': rank {} sends {} bytes to rank {}, which expects {}", name,
                              ranks[from], sizes[0], ranks[to], sizes[1]));
}

}  // namespace farandole
