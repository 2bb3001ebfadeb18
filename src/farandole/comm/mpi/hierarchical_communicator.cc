#include "farandole/comm/mpi/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace farandole {
struct HierarchicalCommunicator::Call {
  // Reduces within nodes first and then between them; each reduction uses the result of the previous one. An
  // average is a sum that is scaled at the end. Only float16, which overflows at 65,504, is averaged within
  // the node and weighted before the sum between nodes.
  struct Reduction {
    Reduction(DType of_dtype, ReduceOp op, int local_size, int size)
        : dtype(of_dtype), between(op == ReduceOp::average ? ReduceOp::sum : op) {
      const bool average = op == ReduceOp::average;
      const bool early = average && dtype == DType::float16;
      in_node = early ? op : between;
      if (early) before = static_cast<double>(local_size) / size;
      if (average && !early) after = 1.0 / size;
    }
    static void scale_by(double factor, void* data, std::size_t count, DType dtype) {
      if (factor != 1) scale(data, count, dtype, factor);
    }

    DType dtype;
    ReduceOp in_node;
    ReduceOp between;
    double before = 1;  // factor between the two reductions
    double after = 1;   // factor at the end
  };

  std::string_view name;
  Reduction how;
};

HierarchicalCommunicator::HierarchicalCommunicator(Parts parts, LeaderPlan plan, Options options)
    : Communicator(parts.all->rank, parts.all->size),
      parts_(std::move(parts)),
      plan_(std::move(plan)),
      options_(options),
      own_node_(plan_.node[static_cast<std::size_t>(rank)]),
      own_local_(plan_.local[static_cast<std::size_t>(rank)]) {}

void HierarchicalCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                         ReduceOp op) {
  const std::size_t bytes = count * size_of(dtype);
  if (bytes <= options_.flat_bytes) return parts_.all->allreduce(name, data, count, dtype, op);
  parts_.all->agree(allreduce_call(name, count, dtype, op));
  check_reduction(op, dtype);
  const Call call{name, Call::Reduction(dtype, op, local_size(), size)};
  if (bytes <= options_.latency_bytes)
    reduce_by_leader(call, static_cast<std::byte*>(data), count);
  else
    reduce_by_slices(call, static_cast<std::byte*>(data), count);
}

// Local rank 0 reduces for its node. This takes three short waits for any number of ranks.
void HierarchicalCommunicator::reduce_by_leader(const Call& call, std::byte* data, std::size_t count) {
  const Call::Reduction& how = call.how;
  const std::size_t bytes = count * size_of(how.dtype);
  if (local_size() > 1) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(local_size()));
    counts[0] = count;
    parts_.node->reduce_scatter(call.name, data, own_local_ == 0 ? data : data + bytes, counts, how.dtype,
                                how.in_node);
  }
  if (own_local_ == 0) {
    Call::Reduction::scale_by(how.before, data, count, how.dtype);
    parts_.leader_groups[0]->allreduce(call.name, data, count, how.dtype, how.between);
    Call::Reduction::scale_by(how.after, data, count, how.dtype);
  }
  if (local_size() > 1) parts_.node->broadcast(call.name, data, bytes, 0);
}

// The message is split into one slice per leader group. Within a node, each rank reduces the slices of the
// leader groups that it serves, takes them through these leader groups, and shares the results. All ranks
// process leader groups in ascending order. The ranks of the lowest unfinished leader group can therefore
// always proceed, and ranks that serve several leader groups cannot deadlock.
void HierarchicalCommunicator::reduce_by_slices(const Call& call, std::byte* data, std::size_t count) {
  const Call::Reduction& how = call.how;
  const std::size_t element = size_of(how.dtype);
  const std::size_t line = 64 / element;  // slices begin at cache lines
  const auto leader_groups = static_cast<std::size_t>(plan_.leader_groups);
  const auto first_of = [&](std::size_t leader_group) {
    return std::min(count, (count * leader_group / leader_groups + line - 1) / line * line);
  };
  std::vector<std::size_t> counts(static_cast<std::size_t>(local_size()));
  std::vector<std::size_t> bytes(counts.size());
  for (std::size_t k = 0; k < leader_groups; ++k) {
    const int server = plan_.server(own_node_, static_cast<int>(k));
    counts[static_cast<std::size_t>(server)] += first_of(k + 1) - first_of(k);
    bytes[static_cast<std::size_t>(server)] = counts[static_cast<std::size_t>(server)] * element;
  }
  const std::size_t own_first = sum(std::span(counts).first(static_cast<std::size_t>(own_local_)));
  const std::size_t own_count = counts[static_cast<std::size_t>(own_local_)];
  std::byte* const own = data + own_first * element;

  if (local_size() > 1) parts_.node->reduce_scatter(call.name, data, own, counts, how.dtype, how.in_node);
  Call::Reduction::scale_by(how.before, own, own_count, how.dtype);
  for (std::size_t k = 0; k < leader_groups; ++k)
    if (serves(static_cast<int>(k)))
      parts_.leader_groups[k]->allreduce(call.name, data + first_of(k) * element,
                                         first_of(k + 1) - first_of(k), how.dtype, how.between);
  Call::Reduction::scale_by(how.after, own, own_count, how.dtype);
  if (local_size() > 1) parts_.node->all_gather(call.name, own, data, bytes);
}

// All parts of a node go through its local rank 0. If ranks are numbered node by node, the parts of a node
// are contiguous in `out`. Otherwise they are gathered by node first and sorted at the end.
void HierarchicalCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  parts_.all->agree(all_gather_call(name, bytes_by_rank));
  std::vector<std::size_t> of_node(static_cast<std::size_t>(plan_.node_count())), of_local;
  for (std::size_t r = 0; r < bytes_by_rank.size(); ++r) {
    of_node[static_cast<std::size_t>(plan_.node[r])] += bytes_by_rank[r];
    if (plan_.node[r] == own_node_) of_local.push_back(bytes_by_rank[r]);
  }
  const std::size_t total = sum(of_node);
  auto* const by_node = plan_.consecutive() ? static_cast<std::byte*>(out) : scratch(total);
  auto* const own = by_node + sum(std::span(of_node).first(static_cast<std::size_t>(own_node_)));
  parts_.node->all_gather(name, in, own, of_local);
  if (own_local_ == 0) parts_.leader_groups[0]->all_gather(name, own, by_node, of_node);
  if (local_size() > 1) parts_.node->broadcast(name, by_node, total, 0);
  if (by_node == out) return;
  std::vector<std::size_t> offsets(bytes_by_rank.size());
  std::exclusive_scan(bytes_by_rank.begin(), bytes_by_rank.end(), offsets.begin(), std::size_t{0});
  const std::byte* from = by_node;
  for (const auto& ranks : plan_.members)
    for (const int r : ranks) {
      const auto i = static_cast<std::size_t>(r);
      if (bytes_by_rank[i] > 0)
        std::memcpy(static_cast<std::byte*>(out) + offsets[i], from, bytes_by_rank[i]);
      from += bytes_by_rank[i];
    }
}

void HierarchicalCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  parts_.all->agree(broadcast_call(name, bytes, root));
  const int root_node = plan_.node[static_cast<std::size_t>(root)];
  const int root_local = plan_.local[static_cast<std::size_t>(root)];
  const int leader_group = plan_.leader_group[static_cast<std::size_t>(root)];
  // A root that does not serve the leader group sends its data to the rank that does.
  const bool node_first = own_node_ == root_node && plan_.server(root_node, leader_group) != root_local;
  if (node_first) parts_.node->broadcast(name, data, bytes, root_local);
  if (serves(leader_group))
    parts_.leader_groups[static_cast<std::size_t>(leader_group)]->broadcast(name, data, bytes, root_node);
  if (!node_first && local_size() > 1)
    parts_.node->broadcast(name, data, bytes, plan_.server(own_node_, leader_group));
}

// The parts of `in` are sorted by leader group, node and local rank. Each rank's part goes through the
// leader group nearest to that rank. A cell is the data that a leader group delivers to a node. The ranks
// of a node reduce the cells to the ranks that serve the leader groups, and the leader groups reduce them
// to the nodes. The result is this rank's part, except on a node with more ranks than leader groups: there
// the cells are gathered.
void HierarchicalCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                              std::span<const std::size_t> count_by_rank, DType dtype,
                                              ReduceOp op) {
  parts_.all->agree(reduce_scatter_call(name, count_by_rank, dtype, op));
  check_reduction(op, dtype);
  const Call call{name, Call::Reduction(dtype, op, local_size(), size)};
  const std::size_t element = size_of(dtype);
  const auto nodes = static_cast<std::size_t>(plan_.node_count());
  const auto leader_groups = static_cast<std::size_t>(plan_.leader_groups);
  std::vector<std::size_t> cells(leader_groups * nodes), of_server(static_cast<std::size_t>(local_size()));
  for (std::size_t r = 0; r < count_by_rank.size(); ++r)
    cells[static_cast<std::size_t>(plan_.leader_group[r]) * nodes +
          static_cast<std::size_t>(plan_.node[r])] += count_by_rank[r];
  for (std::size_t k = 0; k < leader_groups; ++k)
    of_server[static_cast<std::size_t>(plan_.server(own_node_, static_cast<int>(k)))] +=
        sum(std::span(cells).subspan(k * nodes, nodes));
  const std::size_t total = sum(cells);
  auto* const parts = scratch(2 * total * element);
  sort_parts(static_cast<const std::byte*>(in), parts, count_by_rank, element);

  auto* const own = parts + sum(std::span(of_server).first(static_cast<std::size_t>(own_local_))) * element;
  if (local_size() > 1) parts_.node->reduce_scatter(name, parts, own, of_server, dtype, call.how.in_node);
  Call::Reduction::scale_by(call.how.before, own, of_server[static_cast<std::size_t>(own_local_)], dtype);
  std::byte* arrived = own;
  for (std::size_t k = 0; k < leader_groups; ++k) {
    if (!serves(static_cast<int>(k))) continue;
    const auto row = std::span(cells).subspan(k * nodes, nodes);
    auto* const at = parts + sum(std::span(cells).first(k * nodes)) * element;
    auto* const cell = at + sum(row.first(static_cast<std::size_t>(own_node_))) * element;
    parts_.leader_groups[k]->reduce_scatter(name, at, cell, row, dtype, call.how.between);
    if (static_cast<int>(k) == plan_.leader_group[static_cast<std::size_t>(rank)]) arrived = cell;
  }
  if (plan_.leader_groups < local_size())
    arrived = gather_cells(call, arrived, parts + total * element, cells, count_by_rank);
  const std::size_t own_count = count_by_rank[static_cast<std::size_t>(rank)];
  if (own_count > 0) std::memcpy(out, arrived, own_count * element);
  Call::Reduction::scale_by(call.how.after, out, own_count, dtype);
}

void HierarchicalCommunicator::sort_parts(const std::byte* in, std::byte* out,
                                          std::span<const std::size_t> count_by_rank,
                                          std::size_t element) const {
  std::vector<std::size_t> offsets(count_by_rank.size());
  std::exclusive_scan(count_by_rank.begin(), count_by_rank.end(), offsets.begin(), std::size_t{0});
  for (const int rank_in_order : plan_.by_leader_group) {
    const auto r = static_cast<std::size_t>(rank_in_order);
    const std::size_t bytes = count_by_rank[r] * element;
    if (bytes > 0) std::memcpy(out, in + offsets[r] * element, bytes);
    out += bytes;
  }
}

// Each rank that serves a leader group has the parts of some ranks of its node. Returns the position of this
// rank's part in `memory`.
std::byte* HierarchicalCommunicator::gather_cells(const Call& call, const std::byte* own_cell,
                                                  std::byte* memory, std::span<const std::size_t> cells,
                                                  std::span<const std::size_t> count_by_rank) {
  const std::size_t element = size_of(call.how.dtype);
  const auto nodes = static_cast<std::size_t>(plan_.node_count());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(local_size()));
  for (std::size_t k = 0; k < parts_.leader_groups.size(); ++k)
    bytes[static_cast<std::size_t>(plan_.server(own_node_, static_cast<int>(k)))] =
        cells[k * nodes + static_cast<std::size_t>(own_node_)] * element;
  parts_.node->all_gather(call.name, own_cell, memory, bytes);
  for (const int r : plan_.by_leader_group) {
    if (r == rank) break;
    if (plan_.node[static_cast<std::size_t>(r)] == own_node_)
      memory += count_by_rank[static_cast<std::size_t>(r)] * element;
  }
  return memory;
}

void HierarchicalCommunicator::all_to_all(std::string_view name, const void* in,
                                          std::span<const std::size_t> send_bytes, void* out,
                                          std::span<const std::size_t> receive_bytes) {
  parts_.all->all_to_all(name, in, send_bytes, out, receive_bytes);
}

std::byte* HierarchicalCommunicator::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

LeaderPlan::LeaderPlan(std::span<const int> node_by_rank, int wanted) {
  std::map<int, int> number;  // of each name in node_by_rank
  for (std::size_t rank = 0; rank < node_by_rank.size(); ++rank) {
    const auto own = number.emplace(node_by_rank[rank], node_count()).first->second;
    if (own == node_count()) members.emplace_back();
    auto& ranks = members[static_cast<std::size_t>(own)];
    node.push_back(own);
    local.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
  int largest = 1, smallest = static_cast<int>(node.size());
  for (const auto& ranks : members) {
    largest = std::max(largest, static_cast<int>(ranks.size()));
    smallest = std::min(smallest, static_cast<int>(ranks.size()));
  }
  leader_groups = wanted > 0 ? std::min(wanted, largest) : 2 * smallest >= largest ? smallest : largest;
  for (std::size_t rank = 0; rank < node.size(); ++rank) {
    int nearest = leader_groups - 1;
    while (server(node[rank], nearest) > local[rank]) --nearest;
    leader_group.push_back(nearest);
    by_leader_group.push_back(static_cast<int>(rank));
  }
  const auto place = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::tuple(leader_group[r], node[r], local[r]);
  };
  std::sort(by_leader_group.begin(), by_leader_group.end(),
            [&](int a, int b) { return place(a) < place(b); });
}

bool LeaderPlan::consecutive() const {
  return std::is_sorted(node.begin(), node.end());
}

}  // namespace farandole
