#include "farandole/comm/mpi/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/net/link_wait.h"

namespace farandole {
namespace {

constexpr std::size_t largest_part = std::size_t{64} << 20;  // larger allreduces are split

void copy_to(std::span<std::byte* const> places, const std::byte* from, std::size_t bytes) {
  if (!places.empty()) reduce({&from, 1}, places, bytes, DType::uint8, ReduceOp::sum);
}

}  // namespace

// Reduces within nodes first and then between them; each reduction uses the result of the previous one. An
// average is a sum that is scaled at the end. Only float16, which overflows at 65,504, is averaged within
// the node and weighted before the sum between nodes.
struct HierarchicalCommunicator::Reduction {
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

// The slice of a leader group. The rank that serves the group reads the values of all ranks of its node and
// writes the results to all of them, without help from the others.
class HierarchicalCommunicator::NodeSlice : public Slice {
 public:
  // `by_local_rank` are the slices of the ranks of the node.
  NodeSlice(std::vector<std::byte*> by_local_rank, int own, std::size_t elements, const Reduction& reduction)
      : inputs_(std::move(by_local_rank)), others_(inputs_), places_(inputs_), reduction_(reduction) {
    data = inputs_[static_cast<std::size_t>(own)];
    others_.erase(others_.begin() + own);
    count = elements;
    dtype = reduction.dtype;
    op = reduction.between;
  }

  void gather(std::size_t first, std::size_t elements) override {
    std::byte* const own = data + first * size_of(dtype);
    if (inputs_.size() > 1) {
      const auto inputs = at(inputs_, first);
      reduce({const_cast<const std::byte* const*>(inputs.data()), inputs.size()}, {&own, 1}, elements, dtype,
             reduction_.in_node);
    }
    Reduction::scale_by(reduction_.before, own, elements, dtype);
  }

  void finish(std::size_t first, std::size_t elements, bool scaled) override {
    std::byte* const own = data + first * size_of(dtype);
    if (!scaled) Reduction::scale_by(reduction_.after, own, elements, dtype);
    copy_to(at(others_, first), own, elements * size_of(dtype));
  }

 private:
  std::span<std::byte* const> at(const std::vector<std::byte*>& slices, std::size_t first) {
    for (std::size_t i = 0; i < slices.size(); ++i) places_[i] = slices[i] + first * size_of(dtype);
    return {places_.data(), slices.size()};
  }

  std::vector<std::byte*> inputs_, others_, places_;
  Reduction reduction_;
};

HierarchicalCommunicator::HierarchicalCommunicator(Parts parts, LeaderPlan plan, Options options)
    : Communicator(parts.all->rank, parts.all->size),
      parts_(std::move(parts)),
      plan_(std::move(plan)),
      options_(options),
      own_node_(plan_.node[static_cast<std::size_t>(rank)]),
      own_local_(plan_.local[static_cast<std::size_t>(rank)]) {}

HierarchicalCommunicator::~HierarchicalCommunicator() = default;

Buffer HierarchicalCommunicator::allocate(std::size_t bytes) {
  return parts_.node != nullptr ? parts_.node->allocate(bytes) : private_memory(bytes);
}

// Does a part of an operation. If the ranks' calls differ, a rank learns this from its node or from a leader
// group. It tells the other ranks of its node, and leader group 0 tells the other nodes. Then all ranks compare.
template <class Work>
void HierarchicalCommunicator::attempt(Work work) {
  try {
    return work();
  } catch (const CallMismatch&) {
    if (parts_.node != nullptr) parts_.node->refuse();
  }
  pending_.reset();
  if (auto* const group = parts_.leader_groups[0].get(); group != nullptr) {
    if (!greeted_) group->start_small(hash_of(call_), true, nullptr, 0, DType::uint8, ReduceOp::sum);
    LinkWait wait(options_.patience, [] {});
    while (group->exchanging())
      if (!group->advance()) wait.idle(group->active());
  }
  parts_.all->report_mismatch(call_);
}

void HierarchicalCommunicator::begin(const CallDescriptor& call) {
  call_ = call;
  call_.sequence = calls_++;
  greeted_ = false;
}

// Compares the calls of all ranks.
void HierarchicalCommunicator::agree(const CallDescriptor& call) {
  begin(call);
  attempt([this] { reduce_by_leader(nullptr, 0); });
}

void HierarchicalCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                         ReduceOp op) {
  if (!can_reduce(op, dtype)) agree(allreduce_call(name, count, dtype, op));
  check_reduction(op, dtype);
  if (count * size_of(dtype) > options_.latency_bytes) {
    start(name, data, count, dtype, op);
    return wait();
  }
  begin(allreduce_call(name, count, dtype, op));
  attempt([&] { reduce_by_leader(static_cast<std::byte*>(data), count); });
}

// Local rank 0 reduces for its node. This takes three short waits for any number of ranks. Without
// data, this only compares the calls.
void HierarchicalCommunicator::reduce_by_leader(std::byte* data, std::size_t count) {
  const std::size_t bytes = count * size_of(call_.dtype);
  const Reduction how(call_.dtype, call_.op, local_size(), size);
  auto* const node = parts_.node.get();
  std::byte* const box = share(data, bytes);
  if (node != nullptr) {
    node->arrive(call_, box, bytes);
    node->wait_for_all();
  }
  if (own_local_ == 0) {
    std::vector<std::byte*> boxes;
    for (int r = 0; r < local_size(); ++r) boxes.push_back(node != nullptr ? node->data_of(r) : box);
    NodeSlice slice(boxes, 0, count, how);
    if (count > 0) slice.gather(0, count);
    greeted_ = true;
    parts_.leader_groups[0]->start_small(hash_of(call_), false, box, count, call_.dtype, how.between);
    wait_for_groups();
    if (count > 0) slice.finish(0, count, false);
  }
  if (node == nullptr) return;
  node->arrive();
  node->wait_for_all();
  if (box != data) std::memcpy(data, box, bytes);
}

// Returns memory with the same contents that the other ranks of the node can access.
std::byte* HierarchicalCommunicator::share(std::byte* data, std::size_t bytes) {
  auto* const node = parts_.node.get();
  if (node == nullptr || node->shares(data, bytes)) return data;
  std::byte* const shared = shared_.get(*node, bytes);
  copy_to({&shared, 1}, data, bytes);
  return shared;
}

// An allreduce by slices between start() and its completion. The message is split into one slice per leader
// group, and each rank takes the slices of the leader groups that it serves through these groups. Only the
// start and the end need all ranks of the node. Long messages are reduced in several parts.
struct HierarchicalCommunicator::Pending {
  enum class Stage { arriving, exchanging, leaving };

  std::byte* data;  // of the current part
  std::size_t count;
  std::size_t left;  // elements after the current part
  Stage stage = Stage::arriving;
  std::byte* shared = nullptr;
  std::vector<std::unique_ptr<NodeSlice>> slices{};
};

void HierarchicalCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype,
                                     ReduceOp op) {
  const auto call = allreduce_call(name, count, dtype, op);
  if (!can_reduce(op, dtype)) agree(call);
  check_reduction(op, dtype);
  begin(call);
  pending_ = std::make_unique<Pending>(Pending{static_cast<std::byte*>(data), 0, count});
  enter_part();
}

void HierarchicalCommunicator::enter_part() {
  const std::size_t element = size_of(call_.dtype);
  Pending& part = *pending_;
  part.data += part.count * element;
  part.count = std::min(part.left, largest_part / element);
  part.left -= part.count;
  part.stage = Pending::Stage::arriving;
  part.shared = share(part.data, part.count * element);
  if (parts_.node != nullptr) parts_.node->arrive(call_, part.shared, part.count * element);
}

void HierarchicalCommunicator::enter_exchange() {
  Pending& part = *pending_;
  if (parts_.node != nullptr) parts_.node->wait_for_all();
  const Reduction how(call_.dtype, call_.op, local_size(), size);
  const std::size_t element = size_of(call_.dtype), line = 64 / element;  // slices begin at cache lines
  const auto leader_groups = static_cast<std::size_t>(plan_.leader_groups);
  const auto first_of = [&](std::size_t k) {
    return std::min(part.count, (part.count * k / leader_groups + line - 1) / line * line);
  };
  part.stage = Pending::Stage::exchanging;
  part.slices.clear();
  for (std::size_t k = 0; k < leader_groups; ++k) {
    if (!serves(static_cast<int>(k))) continue;
    std::vector<std::byte*> places;
    for (int r = 0; r < local_size(); ++r)
      places.push_back((parts_.node != nullptr ? parts_.node->data_of(r) : part.data) +
                       first_of(k) * element);
    part.slices.push_back(
        std::make_unique<NodeSlice>(std::move(places), own_local_, first_of(k + 1) - first_of(k), how));
    greeted_ = greeted_ || k == 0;
    parts_.leader_groups[k]->start(hash_of(call_), *part.slices.back());
  }
}

void HierarchicalCommunicator::leave_exchange() {
  pending_->stage = Pending::Stage::leaving;
  if (parts_.node != nullptr) parts_.node->arrive();
}

void HierarchicalCommunicator::leave_part() {
  Pending& part = *pending_;
  if (parts_.node != nullptr) parts_.node->wait_for_all();
  if (part.shared != part.data) copy_to({&part.data, 1}, part.shared, part.count * size_of(call_.dtype));
  if (part.left == 0) return pending_.reset();
  begin(call_);
  enter_part();
}

bool HierarchicalCommunicator::can_progress() const {
  return !pending_ || pending_->stage == Pending::Stage::exchanging || parts_.node == nullptr ||
         parts_.node->all_arrived();
}

bool HierarchicalCommunicator::test() {
  attempt([this] {
    while (pending_ && can_progress()) {
      if (pending_->stage == Pending::Stage::arriving) {
        enter_exchange();
      } else if (pending_->stage == Pending::Stage::leaving) {
        leave_part();
      } else {
        bool moved = true;
        while (moved && !active_links().empty()) moved = advance_groups();
        if (!active_links().empty()) return;
        leave_exchange();
      }
    }
  });
  return !pending_;
}

void HierarchicalCommunicator::wait() {
  attempt([this] {
    while (pending_) {
      if (pending_->stage == Pending::Stage::arriving) enter_exchange();
      if (pending_->stage == Pending::Stage::exchanging) {
        wait_for_groups();
        leave_exchange();
      }
      leave_part();
    }
  });
}

// Returns true if something moved.
// Throws: CallMismatch if the ranks' calls differ.
bool HierarchicalCommunicator::advance_groups() {
  bool moved = false;
  for (const auto& group : parts_.leader_groups) {
    if (group == nullptr || group->complete()) continue;
    moved = group->advance() || moved;
    if (group->complete() && group->mismatch())
      throw CallMismatch("the ranks of other nodes make other calls");
  }
  return moved;
}

// The links of the operations in progress.
std::span<Link* const> HierarchicalCommunicator::active_links() {
  active_.clear();
  for (const auto& group : parts_.leader_groups)
    if (group != nullptr) active_.insert(active_.end(), group->active().begin(), group->active().end());
  return active_;
}

// Works until the operations of all leader groups that this rank serves are complete.
void HierarchicalCommunicator::wait_for_groups() {
  LinkWait wait(options_.patience, [this] {
    if (parts_.node != nullptr) parts_.node->look_around();
  });
  while (!active_links().empty()) {
    if (advance_groups())
      wait.moved();
    else
      wait.idle(active_links());
  }
}

// All parts of a node go through its local rank 0. If ranks are numbered node by node, the parts of a node
// are contiguous in `out`. Otherwise they are gathered by node first and sorted at the end.
void HierarchicalCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  agree(all_gather_call(name, bytes_by_rank));
  std::vector<std::size_t> of_node(static_cast<std::size_t>(plan_.node_count())), of_local;
  for (std::size_t r = 0; r < bytes_by_rank.size(); ++r) {
    of_node[static_cast<std::size_t>(plan_.node[r])] += bytes_by_rank[r];
    if (plan_.node[r] == own_node_) of_local.push_back(bytes_by_rank[r]);
  }
  const std::size_t total = sum(of_node);
  auto* const by_node = plan_.consecutive() ? static_cast<std::byte*>(out) : scratch(total);
  auto* const own = by_node + sum(std::span(of_node).first(static_cast<std::size_t>(own_node_)));
  if (parts_.node != nullptr)
    parts_.node->all_gather(name, in, own, of_local);
  else if (in != own && of_local[0] > 0)
    std::memcpy(own, in, of_local[0]);
  if (own_local_ == 0) parts_.mpi_groups[0]->all_gather(name, own, by_node, of_node);
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
  agree(broadcast_call(name, bytes, root));
  const int root_node = plan_.node[static_cast<std::size_t>(root)];
  const int root_local = plan_.local[static_cast<std::size_t>(root)];
  const int leader_group = plan_.leader_group[static_cast<std::size_t>(root)];
  // A root that does not serve the leader group sends its data to the rank that does.
  const bool node_first = own_node_ == root_node && plan_.server(root_node, leader_group) != root_local;
  if (node_first) parts_.node->broadcast(name, data, bytes, root_local);
  if (serves(leader_group))
    parts_.mpi_groups[static_cast<std::size_t>(leader_group)]->broadcast(name, data, bytes, root_node);
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
  agree(reduce_scatter_call(name, count_by_rank, dtype, op));
  check_reduction(op, dtype);
  const Reduction how(dtype, op, local_size(), size);
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
  if (local_size() > 1) parts_.node->reduce_scatter(name, parts, own, of_server, dtype, how.in_node);
  Reduction::scale_by(how.before, own, of_server[static_cast<std::size_t>(own_local_)], dtype);
  std::byte* arrived = own;
  for (std::size_t k = 0; k < leader_groups; ++k) {
    if (!serves(static_cast<int>(k))) continue;
    const auto row = std::span(cells).subspan(k * nodes, nodes);
    auto* const at = parts + sum(std::span(cells).first(k * nodes)) * element;
    auto* const cell = at + sum(row.first(static_cast<std::size_t>(own_node_))) * element;
    parts_.mpi_groups[k]->reduce_scatter(name, at, cell, row, dtype, how.between);
    if (static_cast<int>(k) == plan_.leader_group[static_cast<std::size_t>(rank)]) arrived = cell;
  }
  if (plan_.leader_groups < local_size())
    arrived = gather_cells(name, dtype, arrived, parts + total * element, cells, count_by_rank);
  const std::size_t own_count = count_by_rank[static_cast<std::size_t>(rank)];
  if (own_count > 0) std::memcpy(out, arrived, own_count * element);
  Reduction::scale_by(how.after, out, own_count, dtype);
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
std::byte* HierarchicalCommunicator::gather_cells(std::string_view name, DType dtype,
                                                  const std::byte* own_cell, std::byte* memory,
                                                  std::span<const std::size_t> cells,
                                                  std::span<const std::size_t> count_by_rank) {
  const std::size_t element = size_of(dtype);
  const auto nodes = static_cast<std::size_t>(plan_.node_count());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(local_size()));
  for (std::size_t k = 0; k < parts_.leader_groups.size(); ++k)
    bytes[static_cast<std::size_t>(plan_.server(own_node_, static_cast<int>(k)))] =
        cells[k * nodes + static_cast<std::size_t>(own_node_)] * element;
  parts_.node->all_gather(name, own_cell, memory, bytes);
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
  agree(all_to_all_call(name));
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
