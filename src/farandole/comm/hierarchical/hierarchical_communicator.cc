#include "farandole/comm/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/shm/memory_blocks.h"

namespace farandole {
namespace {

// Reduces within nodes first and then between them; each reduction uses the result of the previous one. An
// average is a sum that is scaled at the end. Only float16, which overflows at 65,504, is averaged within
// the node and weighted before the sum between nodes.
struct NodeReduction {
  NodeReduction(DType of_dtype, ReduceOp op, int local_size, int size)
      : dtype(of_dtype), between(op == ReduceOp::average ? ReduceOp::sum : op) {
    const bool average = op == ReduceOp::average;
    const bool early = average && dtype == DType::float16;
    in_node = early ? op : between;
    if (early) before = static_cast<double>(local_size) / size;
    if (average && !early) after = 1.0 / size;
  }

  DType dtype;
  ReduceOp in_node;
  ReduceOp between;
  double before = 1;  // factor between the two reductions
  double after = 1;   // factor at the end
};

// What a rank that serves a leader group does with the data of its node. It reads the values of all ranks of
// the node and writes the results to all of them, without help from the others.
class NodeSlice : public Slice {
 public:
  // `by_local_rank` are the slices of the ranks of the node.
  NodeSlice(std::vector<std::byte*> by_local_rank, int own, const NodeReduction& reduction)
      : inputs_(std::move(by_local_rank)), others_(inputs_), places_(inputs_), reduction_(reduction) {
    data = inputs_[static_cast<std::size_t>(own)];
    others_.erase(others_.begin() + own);
    dtype = reduction.dtype;
    op = reduction.between;
  }

  void gather(std::size_t first, std::size_t count) override {
    std::byte* const own = data + first * size_of(dtype);
    if (inputs_.size() > 1) {
      const auto inputs = at(inputs_, first);
      reduce({const_cast<const std::byte* const*>(inputs.data()), inputs.size()}, {&own, 1}, count, dtype,
             reduction_.in_node);
    }
    if (reduction_.before != 1) farandole::scale(own, count, dtype, reduction_.before);
  }

  void scale(std::size_t first, std::size_t count) override {
    if (reduction_.after != 1)
      farandole::scale(data + first * size_of(dtype), count, dtype, reduction_.after);
  }

  void finish(std::size_t first, std::size_t count) override {
    const std::byte* const own = data + first * size_of(dtype);
    if (!others_.empty())
      reduce({&own, 1}, at(others_, first), count * size_of(dtype), DType::uint8, ReduceOp::sum);  // copies
  }

 private:
  std::span<std::byte* const> at(const std::vector<std::byte*>& slices, std::size_t first) {
    for (std::size_t i = 0; i < slices.size(); ++i) places_[i] = slices[i] + first * size_of(dtype);
    return {places_.data(), slices.size()};
  }

  std::vector<std::byte*> inputs_, others_, places_;
  NodeReduction reduction_;
};

constexpr std::size_t largest_part = std::size_t{64} << 20;  // larger allreduces are split
constexpr std::size_t least_cell = 256;

// Of `all` bytes or elements, those of the round that begins at `begin` and moves at most `most`.
std::size_t piece_of(std::size_t all, std::size_t begin, std::size_t most) {
  return all <= begin ? 0 : std::min(most, all - begin);
}

// Calls function(rank, offset, size) for each part that has such a piece; the offset is that of the piece.
template <class Function>
void for_each_part(std::span<const std::size_t> sizes, std::size_t begin, std::size_t most,
                   Function function) {
  std::size_t offset = begin;
  for (std::size_t r = 0; r < sizes.size(); offset += sizes[r++])
    if (const auto piece = piece_of(sizes[r], begin, most); piece > 0)
      function(static_cast<int>(r), offset, piece);
}

std::size_t largest_node(const LeaderPlan& plan) {
  return std::ranges::max(plan.members, {}, [](const auto& ranks) { return ranks.size(); }).size();
}

}  // namespace

// A table with cells of equal size: what each rank of this node has for each rank of the group, and what has
// come for each rank of this node, by sender.
struct HierarchicalCommunicator::Cells {
  std::byte* table;
  std::size_t bytes;
  std::size_t ranks, local_ranks;

  std::byte* sent(int local, int to) const { return at(static_cast<std::size_t>(local) * ranks, to); }
  std::byte* arrived(int from, int local) const {
    return at((ranks + static_cast<std::size_t>(from)) * local_ranks, local);
  }
  std::byte* at(std::size_t row, int column) const {
    return table + (row + static_cast<std::size_t>(column)) * bytes;
  }
  std::size_t total() const { return 2 * ranks * local_ranks * bytes; }
};

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
}

HierarchicalCommunicator::HierarchicalCommunicator(Parts parts, LeaderPlan plan, Options options)
    : Communicator(parts.all->rank, parts.all->size),
      parts_(std::move(parts)),
      plan_(std::move(plan)),
      options_(options),
      own_node_(plan_.node[static_cast<std::size_t>(rank)]),
      own_local_(plan_.local[static_cast<std::size_t>(rank)]),
      table_bytes_(std::max(options_.table_bytes,
                            2 * largest_node(plan_) * static_cast<std::size_t>(size) * least_cell)) {
  for (std::size_t k = 0; k < parts_.leader_groups.size(); ++k)
    if (parts_.leader_groups[k] != nullptr) served_.push_back(k);
  if (parts_.node != nullptr)
    parts_.node->set_while_waiting([this] {
      for (const std::size_t k : served_) parts_.leader_groups[k]->keep_moving();
    });
}

HierarchicalCommunicator::~HierarchicalCommunicator() = default;

Buffer HierarchicalCommunicator::allocate(std::size_t bytes) {
  return parts_.node != nullptr ? parts_.node->allocate(bytes) : private_memory(bytes);
}

std::shared_ptr<NodeBlocks> HierarchicalCommunicator::map(std::span<const std::size_t> bytes, Views views) {
  return parts_.node != nullptr ? parts_.node->map(bytes, views) : blocks_of_one(bytes);
}

void HierarchicalCommunicator::meet(const char* name) {
  if (parts_.node != nullptr) parts_.node->meet(name);
}

std::span<const std::byte* const> HierarchicalCommunicator::borrow(std::string_view, const void*, std::size_t,
                                                                   DType, ReduceOp) {
  throw Error("ranks of several nodes cannot read each other's data");
}

// If the ranks' calls differ, a rank learns this from its node or from a leader group. It tells the other
// ranks of its node, and leader group 0 tells the other nodes. Then all ranks compare.
void HierarchicalCommunicator::report_mismatch() {
  if (parts_.node != nullptr) parts_.node->refuse();
  pending_.reset();
  if (auto* const group = parts_.leader_groups[0].get(); group != nullptr) {
    group->refuse(hash_of(call_));
    drive(*group, &LeaderGroup::exchanging, LinkWait(options_.patience));
  }
  for (const std::size_t k : served_) parts_.leader_groups[k]->abandon();
  farandole::report_mismatch(*parts_.all, call_, parts_.world_ranks);
}

void HierarchicalCommunicator::begin(const CallDescriptor& call) {
  call_ = call;
  call_.sequence = calls_++;
  call_.wire = static_cast<std::uint8_t>(options_.wire);
}

// Ranks that make different calls are told so even if one of them wants a reduction that its type
// does not have.
void HierarchicalCommunicator::begin_reduction(const CallDescriptor& call) {
  if (can_reduce(call.op, call.dtype)) return begin(call);
  agree(call);
  check_reduction(call.op, call.dtype);
}

// Compares the calls of all ranks.
void HierarchicalCommunicator::agree(const CallDescriptor& call) {
  begin(call);
  attempt([this] { reduce_by_leader(nullptr, 0, DType::uint8, ReduceOp::sum); });
}

void HierarchicalCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                         ReduceOp op) {
  if (count * size_of(dtype) > options_.latency_bytes) {
    start(name, data, count, dtype, op);
    return wait();
  }
  begin_reduction(allreduce_call(name, count, dtype, op));
  attempt([&] { reduce_by_leader(static_cast<std::byte*>(data), count, dtype, op); });
}

// Local rank 0 reduces for its node. This takes three short waits for any number of ranks. Without
// data, this only compares the calls.
void HierarchicalCommunicator::reduce_by_leader(std::byte* data, std::size_t count, DType dtype,
                                                ReduceOp op) {
  const std::size_t bytes = count * size_of(dtype);
  const NodeReduction how(dtype, op, local_size(), size);
  auto* const node = parts_.node.get();
  std::byte* const box = share(data, bytes);
  if (node != nullptr) {
    node->arrive(call_, box, bytes);
    node->wait_for_all();
  }
  if (own_local_ == 0) {
    std::vector<std::byte*> boxes;
    for (int r = 0; r < local_size(); ++r) boxes.push_back(node != nullptr ? node->data_of(r) : box);
    NodeSlice slice(boxes, 0, how);
    if (count > 0) slice.gather(0, count);
    parts_.leader_groups[0]->start_small(hash_of(call_), false, box, count, dtype, how.between);
    wait_for_groups();
    slice.scale(0, count);
    if (count > 0) slice.finish(0, count);
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
  copy_bytes(shared, data, bytes);
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
  std::vector<std::unique_ptr<Slice>> slices{};
};

void HierarchicalCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype,
                                     ReduceOp op) {
  begin_reduction(allreduce_call(name, count, dtype, op));
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
  part.stage = Pending::Stage::exchanging;
  part.slices.clear();
  for (const std::size_t k : served_) {
    const auto slice = part_of(part.count, k, static_cast<std::size_t>(plan_.leader_groups));
    part.slices.push_back(node_slice(part.data, slice.first));
    if (call_.dtype == DType::float32 && part.slices.back()->op == ReduceOp::sum)
      part.slices.back()->wire = options_.wire;
    parts_.leader_groups[k]->start(
        hash_of(call_), *part.slices.back(),
        allreduce_stream(own_node_, plan_.node_count(), slice.count,
                         parts_.leader_groups[k]->cut(part.slices.back()->wire_dtype())));
  }
}

// The elements from `first` on in the memory of all ranks of this node. `data` is that of this rank, if it is
// the only one of its node.
std::unique_ptr<Slice> HierarchicalCommunicator::node_slice(std::byte* data, std::size_t first) {
  std::vector<std::byte*> places;
  for (int r = 0; r < local_size(); ++r)
    places.push_back((parts_.node != nullptr ? parts_.node->data_of(r) : data) +
                     first * size_of(call_.dtype));
  return std::make_unique<NodeSlice>(std::move(places), own_local_,
                                     NodeReduction(call_.dtype, call_.op, local_size(), size));
}

void HierarchicalCommunicator::leave_exchange() {
  pending_->stage = Pending::Stage::leaving;
  if (parts_.node != nullptr) parts_.node->arrive();
}

void HierarchicalCommunicator::leave_part() {
  Pending& part = *pending_;
  if (parts_.node != nullptr) parts_.node->wait_for_all();
  if (part.shared != part.data) copy_bytes(part.data, part.shared, part.count * size_of(call_.dtype));
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
    if (group == nullptr || !group->busy()) continue;
    moved = group->advance() || moved;
    if (!group->busy() && group->mismatch()) throw CallMismatch("the ranks of other nodes make other calls");
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

void HierarchicalCommunicator::meet() {
  if (parts_.node == nullptr) return;
  parts_.node->arrive();
  parts_.node->wait_for_all();
}

// Two tables are used in turn, so that a rank may copy from the last one while others fill the next one.
std::byte* HierarchicalCommunicator::next_table() {
  if (tables_ == nullptr) tables_ = map(std::vector<std::size_t>{2 * table_bytes_}, Views::no);
  return tables_->blocks()[0] + rounds_++ % 2 * table_bytes_;
}

// Exchanges parts of the tables of all nodes. list(from, to) are the parts that node `from` sends to node
// `to`, in the table of this node, which is one of the two. Each node sends to the node behind it and
// receives from the one in front of it, then with distance 2, and so on, so that no node receives from all
// others at once.
template <class List>
void HierarchicalCommunicator::exchange(List list) {
  constexpr std::size_t most_on_the_way = std::size_t{256} << 10;
  const int nodes = plan_.node_count();
  std::size_t on_the_way = 0;
  for (int distance = 1; distance < nodes; ++distance) {
    const int to = (own_node_ + distance) % nodes, from = (own_node_ - distance + nodes) % nodes;
    const Messages sends = list(own_node_, to), receives = list(from, own_node_);
    for (const std::size_t k : served_)
      on_the_way +=
          parts_.leader_groups[k]->start_messages(to, share_of(k, sends), from, share_of(k, receives));
    if (on_the_way < most_on_the_way) continue;
    wait_for_groups();
    on_the_way = 0;
  }
  wait_for_groups();
}

// What a leader group moves of messages between two nodes: a slice of each long one, and some of
// the short ones.
HierarchicalCommunicator::Messages HierarchicalCommunicator::share_of(std::size_t leader_group,
                                                                      const Messages& all) const {
  constexpr std::size_t short_bytes = 16 * 1024;
  const auto groups = static_cast<std::size_t>(plan_.leader_groups);
  Messages share;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() <= short_bytes) {
      if (i % groups == leader_group) share.push_back(all[i]);
      continue;
    }
    const auto [first, count] = part_of(all[i].size(), leader_group, groups);
    share.push_back(all[i].subspan(first, count));
  }
  return share;
}

HierarchicalCommunicator::Cells HierarchicalCommunicator::cells_in(std::byte* table,
                                                                   std::size_t bytes) const {
  return {table, bytes, static_cast<std::size_t>(size), static_cast<std::size_t>(local_size())};
}

HierarchicalCommunicator::Cells HierarchicalCommunicator::next_cells(std::size_t bytes) {
  return cells_in(next_table(), bytes);
}

std::byte* HierarchicalCommunicator::place_of(const Cells& cells, int from, int to) const {
  const auto sender = static_cast<std::size_t>(from), receiver = static_cast<std::size_t>(to);
  return plan_.node[sender] == own_node_ ? cells.sent(plan_.local[sender], to)
                                         : cells.arrived(from, plan_.local[receiver]);
}

// The size of cells for pieces of data that has `longest` bytes for a rank; the same on all nodes.
std::size_t HierarchicalCommunicator::cell_bytes(std::size_t longest) const {
  const std::size_t most = table_bytes_ / (2 * largest_node(plan_) * static_cast<std::size_t>(size));
  return std::min(most, longest + 63) / 64 * 64;
}

// Sends the cells of this node's ranks to the ranks of other nodes. bytes(from, to) is what a cell contains.
template <class Bytes>
void HierarchicalCommunicator::pass(const Cells& cells, Bytes bytes) {
  meet();
  exchange([&](int from_node, int to_node) {
    Messages list;
    for (const int from : plan_.members[static_cast<std::size_t>(from_node)])
      for (const int to : plan_.members[static_cast<std::size_t>(to_node)])
        list.emplace_back(place_of(cells, from, to), bytes(from, to));
    return list;
  });
  meet();
}

void HierarchicalCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  const auto call = all_gather_call(name, bytes_by_rank);
  const auto own = static_cast<std::size_t>(rank);
  const std::size_t total = sum(bytes_by_rank), own_bytes = bytes_by_rank[own];
  auto* const all = static_cast<std::byte*>(out);
  auto* const own_part = all + sum(bytes_by_rank.first(own));
  if (in != own_part && own_bytes > 0) copy_bytes(own_part, in, own_bytes);
  if (total <= options_.latency_bytes) {
    begin(call);
    std::fill(all, own_part, std::byte{0});
    std::fill(own_part + own_bytes, all + total, std::byte{0});
    return attempt([&] { reduce_by_leader(all, total, DType::uint8, ReduceOp::sum); });
  }
  agree(call);
  const std::size_t longest = *std::max_element(bytes_by_rank.begin(), bytes_by_rank.end());
  const std::size_t step = std::min(table_bytes_ / static_cast<std::size_t>(size), longest + 63) / 64 * 64;
  for (std::size_t done = 0; done < longest; done += step) {
    auto* const table = next_table();
    const auto piece = [&](int of) {
      const auto r = static_cast<std::size_t>(of);
      return std::span(table + r * step, piece_of(bytes_by_rank[r], done, step));
    };
    copy_bytes(piece(rank).data(), own_part + done, piece(rank).size());
    meet();
    exchange([&](int from, int) {
      Messages list;
      for (const int r : plan_.members[static_cast<std::size_t>(from)]) list.push_back(piece(r));
      return list;
    });
    meet();
    for_each_part(bytes_by_rank, done, step, [&](int r, std::size_t at, std::size_t bytes) {
      if (r != rank) copy_bytes(all + at, piece(r).data(), bytes);
    });
  }
}

// Between the nodes, each round is a scatter and an all-gather, so that no node sends everything
// to all others.
void HierarchicalCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  const auto call = broadcast_call(name, bytes, root);
  auto* const at = static_cast<std::byte*>(data);
  if (bytes <= options_.latency_bytes) {
    begin(call);
    if (rank != root) std::fill_n(at, bytes, std::byte{0});
    return attempt([&] { reduce_by_leader(at, bytes, DType::uint8, ReduceOp::sum); });
  }
  agree(call);
  const int root_node = plan_.node[static_cast<std::size_t>(root)];
  for (std::size_t done = 0; done < bytes; done += table_bytes_) {
    const std::span table(next_table(), piece_of(bytes, done, table_bytes_));
    const auto part = [&](int node) {
      const auto [first, count] = part_of(table.size(), static_cast<std::size_t>(node), plan_.members.size());
      return Messages{table.subspan(first, count)};
    };
    if (rank == root) copy_bytes(table.data(), at + done, table.size());
    meet();
    exchange([&](int from, int to) { return from == root_node ? part(to) : Messages(); });
    exchange([&](int from, int to) { return to != root_node ? part(from) : Messages(); });
    meet();
    if (rank != root) copy_bytes(at + done, table.data(), table.size());
  }
}

// The values are combined in the order of an allreduce.
void HierarchicalCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                              std::span<const std::size_t> count_by_rank, DType dtype,
                                              ReduceOp op) {
  const auto call = reduce_scatter_call(name, count_by_rank, dtype, op);
  const auto own = static_cast<std::size_t>(rank), element = size_of(dtype);
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const result = static_cast<std::byte*>(out);
  const std::size_t total = sum(count_by_rank);
  if (total * element <= options_.latency_bytes || !can_reduce(op, dtype)) {
    begin_reduction(call);
    auto* const all = shared_.get(*this, total * element);
    copy_bytes(all, from, total * element);
    attempt([&] { reduce_by_leader(all, total, dtype, op); });
    return copy_bytes(result, all + sum(count_by_rank.first(own)) * element, count_by_rank[own] * element);
  }
  agree(call);
  const NodeReduction how(dtype, op, local_size(), size);
  const std::size_t longest = *std::max_element(count_by_rank.begin(), count_by_rank.end());
  const std::size_t step = cell_bytes(longest * element) / element;
  for (std::size_t done = 0; done < longest; done += step) {
    const Cells cells = next_cells(step * element);
    const auto count_of = [&](int of) {
      return piece_of(count_by_rank[static_cast<std::size_t>(of)], done, step);
    };
    for_each_part(count_by_rank, done, step, [&](int r, std::size_t at, std::size_t count) {
      copy_bytes(cells.sent(own_local_, r), from + at * element, count * element);
    });
    meet();
    // Each rank reduces some cells of all ranks of the node into those of the first one, which are sent.
    for (int r = own_local_; r < size; r += local_size()) {
      std::vector<std::byte*> of_node;
      for (int local = 0; local < local_size(); ++local) of_node.push_back(cells.sent(local, r));
      if (count_of(r) > 0) NodeSlice(std::move(of_node), 0, how).gather(0, count_of(r));
    }
    pass(cells, [&](int sender, int to) {
      return plan_.local[static_cast<std::size_t>(sender)] == 0 ? count_of(to) * element : 0;
    });
    std::vector<std::byte*> by_node;
    for (int node = 0; node < plan_.node_count(); ++node)
      by_node.push_back(node == own_node_
                            ? cells.sent(0, rank)
                            : cells.arrived(plan_.members[static_cast<std::size_t>(node)][0], own_local_));
    if (count_of(rank) == 0) continue;
    auto* const values = result + done * element;
    reduce_in_tree(by_node, values, count_of(rank), dtype, how.between);
    if (how.after != 1) scale(values, count_of(rank), dtype, how.after);
  }
}

void HierarchicalCommunicator::all_to_all(std::string_view name, const void* in,
                                          std::span<const std::size_t> send_bytes, void* out,
                                          std::span<const std::size_t> receive_bytes) {
  agree(all_to_all_call(name));
  // What the ranks of this node send to all, and all to the ranks of this node.
  Cells sizes = next_cells(sizeof(std::size_t));
  std::memcpy(sizes.sent(own_local_, 0), send_bytes.data(), send_bytes.size_bytes());
  pass(sizes, [](int, int) { return sizeof(std::size_t); });
  std::vector<std::byte> memory(sizes.table, sizes.table + sizes.total());
  sizes.table = memory.data();
  const auto bytes_of = [&](int from, int to) {
    std::size_t bytes = 0;
    std::memcpy(&bytes, place_of(sizes, from, to), sizeof bytes);
    return bytes;
  };
  std::vector<std::size_t> arriving;
  for (int r = 0; r < size; ++r) arriving.push_back(bytes_of(r, rank));
  const std::size_t longest =
      compare_sizes(*this, name, send_bytes, arriving, receive_bytes, parts_.world_ranks);
  const std::size_t step = cell_bytes(longest);
  for (std::size_t done = 0; done < longest; done += step) {
    const Cells cells = next_cells(step);
    for_each_part(send_bytes, done, step, [&](int r, std::size_t at, std::size_t bytes) {
      copy_bytes(cells.sent(own_local_, r), static_cast<const std::byte*>(in) + at, bytes);
    });
    pass(cells, [&](int from, int to) { return piece_of(bytes_of(from, to), done, step); });
    for_each_part(receive_bytes, done, step, [&](int r, std::size_t at, std::size_t bytes) {
      copy_bytes(static_cast<std::byte*>(out) + at, place_of(cells, r, rank), bytes);
    });
  }
}

}  // namespace farandole
