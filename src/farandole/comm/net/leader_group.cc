#include "farandole/comm/net/leader_group.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "farandole/comm/kernels/kernels.h"

namespace farandole {
// Recursive doubling. Ranks beyond the largest power of two give their values to a partner first and get
// the result from it at the end.
LeaderGroup::LeaderGroup(int rank, int size, std::vector<std::unique_ptr<Link>> links)
    : rank_(rank), size_(size), links_(std::move(links)) {
  using enum Round::Receives;
  const auto paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= paired) {
    rounds_ = {{rank - paired, true, nothing}, {rank - paired, false, result}};
    return;
  }
  const bool has_extra = rank + paired < size;
  if (has_extra) rounds_.push_back({rank + paired, false, operand});
  for (int bit = 1; bit < paired; bit *= 2) rounds_.push_back({rank ^ bit, true, operand});
  if (has_extra) rounds_.push_back({rank + paired, true, nothing});
}

void LeaderGroup::start_small(std::uint64_t call_hash, bool mismatch, std::byte* data, std::size_t count,
                              DType dtype, ReduceOp op) {
  call_hash_ = call_hash;
  mismatch_ = mismatch;
  data_ = data;
  count_ = count;
  dtype_ = dtype;
  op_ = op;
  round_ = 0;
  phase_ = Phase::exchange;
  enter_round();
}

void LeaderGroup::enter_round() {
  const Round& round = rounds_[round_];
  Link& link = *links_[static_cast<std::size_t>(round.peer)];
  active_.assign(1, &link);
  sent_at_start_ = link.sent();
  received_at_start_ = link.received();
  const std::size_t bytes = count_ * size_of(dtype_);
  if (round.sends) {
    own_header_ = {call_hash_, mismatch_ ? 1u : 0u, mismatch_ || bytes == 0 ? 0u : 1u};
    link.send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
    if (own_header_.has_data != 0) link.send(data_, bytes);
  }
  if (round.receives != Round::Receives::nothing) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    link.receive(reinterpret_cast<std::byte*>(&their_header_), sizeof their_header_);
    if (bytes > 0) link.receive(scratch_.data(), bytes);
  }
}

bool LeaderGroup::advance_round() {
  const Round& round = rounds_[round_];
  Link& link = *links_[static_cast<std::size_t>(round.peer)];
  const bool moved = link.progress();
  const bool data = count_ > 0;
  const auto received = link.received() - received_at_start_;
  if (round.receives != Round::Receives::nothing) {
    if (received == 0) return moved;
    if (their_header_.call_hash != call_hash_ || their_header_.mismatch != 0 ||
        (their_header_.has_data != 0) != data) {
      // The peer's data may have any size. The communicator is not used after this call.
      mismatch_ = true;
      link.abandon();
      leave_round();
      return true;
    }
    if (received < (data ? 2u : 1u)) return moved;
  }
  if (round.sends && link.sent() - sent_at_start_ < (own_header_.has_data != 0 ? 2u : 1u)) return moved;
  if (data && !mismatch_ && round.receives == Round::Receives::operand) {
    // All ranks combine in the order of the ranks, so that they get the same bits.
    std::array<const std::byte*, 2> inputs = {data_, scratch_.data()};
    if (round.peer < rank_) std::swap(inputs[0], inputs[1]);
    reduce(inputs, {&data_, 1}, count_, dtype_, op_);
  }
  if (data && !mismatch_ && round.receives == Round::Receives::result)
    std::copy_n(scratch_.data(), count_ * size_of(dtype_), data_);
  leave_round();
  return true;
}

void LeaderGroup::leave_round() {
  if (++round_ < rounds_.size()) return enter_round();
  active_.clear();
  phase_ = Phase::idle;
  if (mismatch_) slice_ = nullptr;
  if (slice_ != nullptr) enter_stream();
}

// Two ranks compare their calls at the beginning of the stream. More ranks compare them before.
void LeaderGroup::start(std::uint64_t call_hash, Slice& slice, Stream stream) {
  slice_ = &slice;
  stream_ = std::move(stream);
  if (size_ > 2) return start_small(call_hash, false, nullptr, 0, slice.dtype, slice.op);
  call_hash_ = call_hash;
  greet();
  enter_stream();
}

void LeaderGroup::start_agreed(Slice& slice, Stream stream) {
  slice_ = &slice;
  stream_ = std::move(stream);
  enter_stream();
}

void LeaderGroup::enter_stream() {
  phase_ = Phase::stream;
  mismatch_ = false;
  exchange_.start(rank_, *slice_, std::move(stream_), links_, header_pending_ ? 1 : 0);
  active_.clear();
  exchange_.add_active(active_);
}

void LeaderGroup::greet() {
  header_pending_ = true;
  own_header_ = {call_hash_, 0, 1};
  Link& link = *links_[static_cast<std::size_t>(1 - rank_)];
  received_at_start_ = link.received();
  link.send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
  link.receive(reinterpret_cast<std::byte*>(&their_header_), sizeof their_header_);
}

bool LeaderGroup::advance() {
  if (phase_ == Phase::exchange) return advance_round();
  if (phase_ == Phase::stream) return advance_stream();
  return false;
}

bool LeaderGroup::advance_stream() {
  bool moved = false;
  if (!header_pending_ || active_.front()->abandons_at_once()) moved = exchange_.post();
  for (auto* const link : active_) moved = link->progress() || moved;
  if (header_pending_) {
    if (active_.front()->received() == received_at_start_) return moved;
    header_pending_ = false;
    mismatch_ =
        their_header_.call_hash != call_hash_ || their_header_.mismatch != 0 || their_header_.has_data == 0;
    if (mismatch_) active_.front()->abandon();
  }
  if (!mismatch_) moved = exchange_.use() || moved;
  active_.clear();
  if (mismatch_ || exchange_.complete()) {
    exchange_.stop();
    slice_ = nullptr;
    phase_ = Phase::idle;
    return true;
  }
  exchange_.add_active(active_);
  return moved;
}

std::size_t LeaderGroup::piece_bytes(int size) {
  constexpr std::size_t least = std::size_t{16} << 10;
  return std::max(least, std::bit_floor(2 * StreamExchange::most_bytes / static_cast<std::size_t>(size)));
}

void drive(LeaderGroup& group, bool (LeaderGroup::*pending)() const, LinkWait wait) {
  while ((group.*pending)()) {
    if (group.advance())
      wait.moved();
    else
      wait.idle(group.active());
  }
}

}  // namespace farandole
