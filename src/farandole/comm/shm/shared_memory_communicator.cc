#include "farandole/comm/shm/shared_memory_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <numeric>
#include <thread>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/shm/memory_blocks.h"

namespace farandole {
namespace {

constexpr std::size_t line_offset = 64;  // the arena's token comes first
constexpr std::size_t meeting_offset = 128;
constexpr std::size_t calls_offset = 4096;
constexpr std::size_t staging_offset = 8192;
constexpr std::size_t piece_bytes = std::size_t{256} << 10;  // size of a staging area
// Up to this size all data is staged, because a second barrier would cost more than the copies.
constexpr std::size_t staged_bytes = 1024;
// With at least this many ranks and bytes, each rank reduces only a slice of a staged piece.
constexpr int ranks_that_slice = 4;
constexpr std::size_t sliced_bytes = std::size_t{16} << 10;

constexpr auto slice = NodeSharing::node_part;

}  // namespace

std::pair<std::size_t, std::size_t> NodeSharing::node_part(std::size_t count, std::size_t element_bytes,
                                                           int part, int parts) {
  const std::size_t line = 64 / element_bytes;
  const std::size_t step = (count / static_cast<std::size_t>(parts) + line) / line * line;
  const auto cut = [&](int i) { return std::min(count, step * static_cast<std::size_t>(i)); };
  return {cut(part), cut(part + 1)};
}

SharedMemoryCommunicator::SharedMemoryCommunicator(Communicator& bootstrap, SharedMemoryOptions options)
    : Communicator(bootstrap.rank, bootstrap.size),
      world_ranks_(std::move(options.world_ranks)),
      memory_(bootstrap, staging_offset + 2 * piece_bytes, options.arena_bytes),
      places_(static_cast<std::size_t>(size)) {
  if (world_ranks_.empty()) {
    world_ranks_.resize(places_.size());
    std::iota(world_ranks_.begin(), world_ranks_.end(), 0);
  }
  std::vector<ArrivalLine*> lines, meeting_lines;
  std::vector<PeerWatch::Peer> peers;
  for (int r = 0; r < size; ++r) {
    lines.push_back(reinterpret_cast<ArrivalLine*>(memory_.base(r) + line_offset));
    meeting_lines.push_back(reinterpret_cast<ArrivalLine*>(memory_.base(r) + meeting_offset));
    const pid_t pid = memory_.pid(r);
    if (pid != ::getpid()) peers.push_back({world_ranks_[static_cast<std::size_t>(r)], pid});
  }
  peers_ = std::make_unique<PeerWatch>(peers);
  const auto make = [&](std::vector<ArrivalLine*> of_ranks) {
    return std::make_unique<NodeBarrier>(rank, std::move(of_ranks), options.patience,
                                         [this](int missing, bool left) { look_around_for(missing, left); });
  };
  barrier_ = make(std::move(lines));
  meetings_ = make(std::move(meeting_lines));
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() = default;

std::string SharedMemoryCommunicator::describe_call() const {
  return fmt::format("{} '{}' (call {})", name_of(call_.operation), call_.name, call_.sequence);
}

void SharedMemoryCommunicator::notice_refusal() const {
  while_waiting_();
  if (barrier_->refused()) throw CallMismatch("the ranks of other nodes make other calls");
}

void SharedMemoryCommunicator::look_around() const {
  notice_refusal();
  if (const auto lost = peers_->lost())
    throw Error(fmt::format("rank {} (pid {}) was lost, {}, while this rank waited in {}", lost->rank,
                            lost->pid, lost->cause, describe_call()),
                ExitCode::peer_lost);
}

// Called regularly while this rank waits.
void SharedMemoryCommunicator::look_around_for(int missing, bool left) const {
  if (!left) return look_around();
  notice_refusal();  // The missing rank is not lost, also if its process has ended.
  const int missed = world_ranks_[static_cast<std::size_t>(missing)];
  // The watchdogs know better what the ranks do, and end the job earlier if there are any.
  constexpr auto watchdogs_take = 10 * ns_per_second;
  if (left_since_ns_ == 0) left_since_ns_ = now_ns();
  if (now_ns() - left_since_ns_ < watchdogs_take)
    return std::this_thread::sleep_for(std::chrono::milliseconds(10));
  throw Error(fmt::format("rank {} has closed its communicator and will not come to {}; all ranks must make "
                          "the same calls",
                          missed, describe_call()),
              ExitCode::user_error);
}

void SharedMemoryCommunicator::enter(CallDescriptor call, const void* data, std::size_t bytes) {
  call.sequence = calls_++;
  call_ = call;
  met_ = false;
  left_since_ns_ = 0;
  std::memcpy(memory_.base(rank) + calls_offset + calls_ % 2 * sizeof call_, &call_, sizeof call_);
  std::optional<std::size_t> offset;
  if (bytes == 0) offset = 0;
  if (bytes > staged_bytes) offset = memory_.offset_of(data, bytes);
  barrier_->note(rank, calls_) = {hash_of(call_), offset.value_or(not_shared)};
}

void SharedMemoryCommunicator::meet() {
  barrier_->arrive_and_wait();
  if (!std::exchange(met_, true)) compare_calls();
}

void SharedMemoryCommunicator::compare_calls() const {
  const auto own = barrier_->note(rank, calls_).signature;
  bool same = true;
  for (int r = 0; r < size; ++r) same = same && barrier_->note(r, calls_).signature == own;
  if (same) return;
  std::vector<CallDescriptor> by_rank(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r)
    std::memcpy(&by_rank[static_cast<std::size_t>(r)],
                memory_.base(r) + calls_offset + calls_ % 2 * sizeof call_, sizeof call_);
  throw CallMismatch(describe_mismatch(by_rank, world_ranks_));
}

void SharedMemoryCommunicator::arrive(CallDescriptor call, const void* data, std::size_t bytes) {
  enter(call, nullptr, 0);
  if (bytes > 0) {
    const auto offset = memory_.offset_of(data, bytes);
    if (!offset)
      throw Error("no shared memory is left for a collective of several nodes; give the ranks more memory");
    barrier_->note(rank, calls_).offset = *offset;
  }
  barrier_->arrive();
}

void SharedMemoryCommunicator::wait_for_all() {
  barrier_->wait();
  if (!std::exchange(met_, true)) compare_calls();
}

std::shared_ptr<NodeBlocks> SharedMemoryCommunicator::map(std::span<const std::size_t> bytes, Views views) {
  return share_blocks(*this, bytes, views);
}

void SharedMemoryCommunicator::meet(const char*) {
  left_since_ns_ = 0;
  meetings_->arrive_and_wait();
}

std::span<const std::byte* const> SharedMemoryCommunicator::borrow(std::string_view name, const void* data,
                                                                   std::size_t count, DType dtype,
                                                                   ReduceOp op) {
  arrive(allreduce_call(name, count, dtype, op), data, count * size_of(dtype));
  wait_for_all();
  check_reduction(op, dtype);
  return everywhere([&](int r) { return shared(r); }, 0);
}

bool SharedMemoryCommunicator::is_shared(int r) const {
  return barrier_->note(r, calls_).offset != not_shared;
}

bool SharedMemoryCommunicator::all_shared() const {
  for (int r = 0; r < size; ++r)
    if (!is_shared(r)) return false;
  return true;
}

std::byte* SharedMemoryCommunicator::shared(int r) const {
  return memory_.base(r) + barrier_->note(r, calls_).offset;
}

std::byte* SharedMemoryCommunicator::staging(int r) const {
  return memory_.base(r) + staging_offset + pieces_ % 2 * piece_bytes;
}

// The same offset in every rank's memory, as `where` gives it.
template <class Where>
std::span<const std::byte* const> SharedMemoryCommunicator::everywhere(Where where, std::size_t offset) {
  for (int r = 0; r < size; ++r) places_[static_cast<std::size_t>(r)] = where(r) + offset;
  return {const_cast<const std::byte* const*>(places_.data()), places_.size()};
}

void SharedMemoryCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                         ReduceOp op) {
  start(name, data, count, dtype, op);
  wait();
}

void SharedMemoryCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype,
                                     ReduceOp op) {
  if (size == 1) return check_reduction(op, dtype);
  const std::size_t bytes = count * size_of(dtype);
  enter(allreduce_call(name, count, dtype, op), data, bytes);
  if (!is_shared(rank)) copy_bytes(staging(rank), data, std::min(bytes, piece_bytes));
  barrier_->arrive();
  pending_ = Pending{static_cast<std::byte*>(data), count, dtype, op};
}

bool SharedMemoryCommunicator::test() {
  while (pending_ && barrier_->complete()) advance();
  return !pending_;
}

void SharedMemoryCommunicator::wait() {
  while (pending_) {
    barrier_->wait();
    advance();
  }
}

// Call this when all ranks have arrived as often as this one. Does the work for which they have arrived.
void SharedMemoryCommunicator::advance() {
  const auto [data, count, dtype, op] = *pending_;
  const bool reduced = std::exchange(met_, true);
  if (reduced) return pending_.reset();
  try {
    compare_calls();
    // Checked here, because a rank that throws alone would leave the others waiting.
    check_reduction(op, dtype);
  } catch (...) {
    pending_.reset();
    throw;
  }
  if (count * size_of(dtype) > staged_bytes && all_shared()) {
    reduce_slice(count, dtype, op);
    return barrier_->arrive();
  }
  bool staged = true;
  // Otherwise some ranks must still copy their data.
  for (int r = 0; r < size; ++r) staged = staged && !is_shared(r);
  pending_.reset();
  reduce_staged(data, count, dtype, op, staged);
}

void SharedMemoryCommunicator::reduce_slice(std::size_t count, DType dtype, ReduceOp op) {
  const auto [first, last] = slice(count, size_of(dtype), rank, size);
  const auto inputs = everywhere([&](int r) { return shared(r); }, first * size_of(dtype));
  if (last > first) reduce(inputs, places_, last - first, dtype, op);
}

// If `staged`, the first piece is already in the staging area.
void SharedMemoryCommunicator::reduce_staged(std::byte* data, std::size_t count, DType dtype, ReduceOp op,
                                             bool staged) {
  const auto staging_areas = [&](int r) { return staging(r); };
  const std::size_t step = piece_bytes / size_of(dtype);
  for (std::size_t first = 0; first < count; first += step, ++pieces_) {
    const std::size_t length = std::min(step, count - first);
    auto* const at = data + first * size_of(dtype);
    if (first > 0 || !staged) {
      copy_bytes(staging(rank), at, length * size_of(dtype));
      meet();
    }
    if (size < ranks_that_slice || length * size_of(dtype) < sliced_bytes) {
      reduce(everywhere(staging_areas, 0), std::span(&at, 1), length, dtype, op);
      continue;
    }
    const auto own = slice(length, size_of(dtype), rank, size);
    if (own.second > own.first) {
      const auto inputs = everywhere(staging_areas, own.first * size_of(dtype));
      reduce(inputs, std::span(&places_[static_cast<std::size_t>(rank)], 1), own.second - own.first, dtype,
             op);
    }
    meet();
    for (int r = 0; r < size; ++r) {
      const auto part = slice(length, size_of(dtype), r, size);
      copy_bytes(at + part.first * size_of(dtype), staging(r) + part.first * size_of(dtype),
                 (part.second - part.first) * size_of(dtype));
    }
  }
}

void SharedMemoryCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                          std::span<const std::size_t> bytes_by_rank) {
  const auto* const own = static_cast<const std::byte*>(in);
  auto* const all = static_cast<std::byte*>(out);
  const std::size_t own_bytes = bytes_by_rank[static_cast<std::size_t>(rank)];
  const std::size_t longest = *std::max_element(bytes_by_rank.begin(), bytes_by_rank.end());
  enter(all_gather_call(name, bytes_by_rank), in, own_bytes);
  const auto copy_pieces = [&](auto from, std::size_t begin, std::size_t length) {
    auto* part = all;
    for (int r = 0; r < size; part += bytes_by_rank[static_cast<std::size_t>(r++)]) {
      const std::size_t bytes = bytes_by_rank[static_cast<std::size_t>(r)];
      if (begin >= bytes || (r == rank && part == own)) continue;
      copy_bytes(part + begin, r == rank ? own + begin : from(r), std::min(length, bytes - begin));
    }
  };
  if (longest > staged_bytes) {
    meet();
    if (all_shared()) {
      copy_pieces([&](int r) { return shared(r); }, 0, longest);
      return meet();
    }
  }
  for (std::size_t begin = 0; begin < longest || !met_; begin += piece_bytes, ++pieces_) {
    if (begin < own_bytes) copy_bytes(staging(rank), own + begin, std::min(piece_bytes, own_bytes - begin));
    meet();
    copy_pieces([&](int r) { return staging(r); }, begin, piece_bytes);
  }
}

void SharedMemoryCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  if (size == 1) return;
  auto* const at = static_cast<std::byte*>(data);
  enter(broadcast_call(name, bytes, root), data, bytes);
  if (bytes > staged_bytes) {
    meet();
    if (is_shared(root)) {
      if (rank != root) copy_bytes(at, shared(root), bytes);
      return meet();
    }
  }
  for (std::size_t begin = 0; begin < bytes || !met_; begin += piece_bytes, ++pieces_) {
    const std::size_t length = std::min(piece_bytes, bytes - begin);
    if (rank == root) copy_bytes(staging(root), at + begin, length);
    meet();
    if (rank != root) copy_bytes(at + begin, staging(root), length);
  }
}

void SharedMemoryCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                              std::span<const std::size_t> count_by_rank, DType dtype,
                                              ReduceOp op) {
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  const std::size_t element = size_of(dtype);
  const std::size_t own_count = count_by_rank[static_cast<std::size_t>(rank)];
  const std::size_t total = sum(count_by_rank) * element;
  enter(reduce_scatter_call(name, count_by_rank, dtype, op), in, total);
  if (total > staged_bytes) {
    meet();
    if (all_shared()) {
      const std::size_t before = sum(count_by_rank.first(static_cast<std::size_t>(rank)));
      if (own_count > 0)
        reduce(everywhere([&](int r) { return shared(r); }, before * element), std::span(&to, 1), own_count,
               dtype, op);
      return meet();
    }
  }
  // Each staging area has a box for every rank.
  const std::size_t box = piece_bytes / static_cast<std::size_t>(size) / 64 * 64;
  const std::size_t step = box / element;
  const std::size_t longest = *std::max_element(count_by_rank.begin(), count_by_rank.end());
  for (std::size_t first = 0; first < longest || !met_; first += step, ++pieces_) {
    const auto* part = from;
    for (std::size_t r = 0; r < count_by_rank.size(); part += count_by_rank[r++] * element)
      if (first < count_by_rank[r])
        copy_bytes(staging(rank) + r * box, part + first * element,
                   std::min(step, count_by_rank[r] - first) * element);
    meet();
    check_reduction(op, dtype);
    if (first >= own_count) continue;
    auto* const at = to + first * element;
    reduce(everywhere([&](int r) { return staging(r); }, static_cast<std::size_t>(rank) * box),
           std::span(&at, 1), std::min(step, own_count - first), dtype, op);
  }
}

void SharedMemoryCommunicator::all_to_all(std::string_view name, const void* in,
                                          std::span<const std::size_t> send_bytes, void* out,
                                          std::span<const std::size_t> receive_bytes) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto own = static_cast<std::size_t>(rank);
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  enter(all_to_all_call(name), in, sum(send_bytes));
  // First exchanges all sizes: bytes sent to each rank, then bytes expected from each rank.
  std::copy(send_bytes.begin(), send_bytes.end(), sizes_at(rank));
  std::copy(receive_bytes.begin(), receive_bytes.end(), sizes_at(rank) + ranks);
  meet();
  const bool direct = all_shared();
  std::vector<std::size_t> begins(ranks);  // offsets of the data for this rank in the senders' memory
  std::size_t longest = 0;
  for (std::size_t sender = 0; sender < ranks; ++sender) {
    const std::size_t* sizes = sizes_at(static_cast<int>(sender));
    begins[sender] = std::accumulate(sizes, sizes + own, std::size_t{0});
    for (std::size_t receiver = 0; receiver < ranks; ++receiver) {
      longest = std::max(longest, sizes[receiver]);
      const std::size_t expected = sizes_at(static_cast<int>(receiver))[ranks + sender];
      if (sizes[receiver] != expected)
        throw UserError(fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {}",
                                    describe_call(), world_ranks_[sender], sizes[receiver],
                                    world_ranks_[receiver], expected));
    }
  }
  ++pieces_;
  const auto copy_parts = [&](auto where, std::size_t begin, std::size_t length) {
    auto* part = to;
    for (std::size_t r = 0; r < ranks; part += receive_bytes[r++])
      if (begin < receive_bytes[r])
        copy_bytes(part + begin, where(r), std::min(length, receive_bytes[r] - begin));
  };
  if (direct) {
    copy_parts([&](std::size_t r) { return shared(static_cast<int>(r)) + begins[r]; }, 0, longest);
    return meet();
  }
  const std::size_t box = piece_bytes / ranks / 64 * 64;
  for (std::size_t begin = 0; begin < longest; begin += box, ++pieces_) {
    const auto* part = from;
    for (std::size_t r = 0; r < ranks; part += send_bytes[r++])
      if (begin < send_bytes[r])
        copy_bytes(staging(rank) + r * box, part + begin, std::min(box, send_bytes[r] - begin));
    meet();
    copy_parts([&](std::size_t r) { return staging(static_cast<int>(r)) + own * box; }, begin, box);
  }
}

std::size_t* SharedMemoryCommunicator::sizes_at(int r) const {
  return reinterpret_cast<std::size_t*>(staging(r));
}

Buffer SharedMemoryCommunicator::allocate(std::size_t bytes) {
  return memory_.allocate(bytes);
}

}  // namespace farandole
