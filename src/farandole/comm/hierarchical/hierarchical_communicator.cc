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

}  // namespace

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
      own_local_(plan_.local[static_cast<std::size_t>(rank)]) {
  for (std::size_t k = 0; k < parts_.leader_groups.size(); ++k)
    if (parts_.leader_groups[k] != nullptr) served_.push_back(k);
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

// The ranks compare their calls as in an allreduce. Nothing else of these collectives is on the way of a
// training step, so MPI does them.
void HierarchicalCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  agree(all_gather_call(name, bytes_by_rank));
  parts_.all->all_gather(name, in, out, bytes_by_rank);
}

void HierarchicalCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  agree(broadcast_call(name, bytes, root));
  parts_.all->broadcast(name, data, bytes, root);
}

void HierarchicalCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                              std::span<const std::size_t> count_by_rank, DType dtype,
                                              ReduceOp op) {
  agree(reduce_scatter_call(name, count_by_rank, dtype, op));
  parts_.all->reduce_scatter(name, in, out, count_by_rank, dtype, op);
}

void HierarchicalCommunicator::all_to_all(std::string_view name, const void* in,
                                          std::span<const std::size_t> send_bytes, void* out,
                                          std::span<const std::size_t> receive_bytes) {
  agree(all_to_all_call(name));
  parts_.all->all_to_all(name, in, send_bytes, out, receive_bytes);
}

}  // namespace farandole
