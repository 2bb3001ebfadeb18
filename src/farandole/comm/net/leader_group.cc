#include "farandole/comm/net/leader_group.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
std::vector<bool> needed_links(int rank, int size) {
  std::vector<bool> needed(static_cast<std::size_t>(size));
  const auto need = [&](int peer) {
    if (peer >= 0 && peer < size && peer != rank) needed[static_cast<std::size_t>(peer)] = true;
  };
  const auto paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  need((rank + 1) % size);
  need((rank + size - 1) % size);
  need(rank >= paired ? rank - paired : rank + paired);
  if (rank < paired)
    for (int bit = 1; bit < paired; bit *= 2) need(rank ^ bit);
  return needed;
}

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
  enter_stream();
  greet();
}

void LeaderGroup::start_agreed(Slice& slice, Stream stream) {
  slice_ = &slice;
  stream_ = std::move(stream);
  enter_stream();
}

void LeaderGroup::enter_stream() {
  phase_ = Phase::stream;
  mismatch_ = false;
  posted_sends_ = posted_receives_ = used_ = 0;
  out_ = links_[static_cast<std::size_t>(stream_.to)].get();
  in_ = links_[static_cast<std::size_t>(stream_.from)].get();
  active_.assign(1, out_);
  if (in_ != out_) active_.push_back(in_);
  const std::size_t pieces_bytes = landings() * piece_bytes;
  if (stream_.operands > 0 || narrows()) scratch_.resize(std::max(scratch_.size(), pieces_bytes));
  if (narrows()) packed_.resize(std::max(packed_.size(), pieces_bytes));
  sent_at_start_ = out_->sent();
  received_at_start_ = in_->received();
}

void LeaderGroup::greet() {
  header_pending_ = true;
  own_header_ = {call_hash_, 0, 1};
  ++sent_at_start_;
  ++received_at_start_;
  out_->send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
  in_->receive(reinterpret_cast<std::byte*>(&their_header_), sizeof their_header_);
}

bool LeaderGroup::advance() {
  if (phase_ == Phase::exchange) return advance_round();
  if (phase_ == Phase::stream) return advance_stream();
  return false;
}

bool LeaderGroup::advance_stream() {
  bool moved = false;
  if (!header_pending_ || (out_->abandons_at_once() && in_->abandons_at_once())) {
    moved = post_receives();
    moved = post_sends() || moved;
  }
  moved = out_->progress() || moved;
  if (in_ != out_) moved = in_->progress() || moved;
  if (header_pending_) {
    if (in_->received() + 1 == received_at_start_) return moved;
    header_pending_ = false;
    if (their_header_.call_hash != call_hash_ || their_header_.mismatch != 0 || their_header_.has_data == 0) {
      give_up();
      return true;
    }
  }
  moved = use_received() || moved;
  if (used_ == stream_.receives.size() && out_->sent() == sent_at_start_ + stream_.sends.size()) {
    phase_ = Phase::idle;
    slice_ = nullptr;
    active_.clear();
  }
  return moved;
}

void LeaderGroup::give_up() {
  mismatch_ = true;
  for (auto* const link : active_) link->abandon();
  active_.clear();
  slice_ = nullptr;
  phase_ = Phase::idle;
}

std::size_t LeaderGroup::bytes_of(const ElementRange& piece) const {
  return piece.count * (narrows() ? sizeof(BFloat16) : size_of(slice_->dtype));
}

// Results are received into their places, and other pieces into memory that stays in the caches.
std::byte* LeaderGroup::landing(std::size_t receive) {
  if (receive >= stream_.operands && !narrows())
    return slice_->data + stream_.receives[receive].first * size_of(slice_->dtype);
  return scratch_.data() + receive % landings() * piece_bytes;
}

bool LeaderGroup::may_overwrite(std::size_t receive) const {
  return out_->sent() >= sent_at_start_ + stream_.sent_before[receive];
}

bool LeaderGroup::post_receives() {
  const std::size_t before = posted_receives_;
  const std::size_t end = std::min(stream_.receives.size(), used_ + landings());
  for (; posted_receives_ < end; ++posted_receives_) {
    if (posted_receives_ >= stream_.operands && !may_overwrite(posted_receives_)) break;
    in_->receive(landing(posted_receives_), bytes_of(stream_.receives[posted_receives_]));
  }
  return posted_receives_ > before;
}

bool LeaderGroup::post_sends() {
  const std::size_t before = posted_sends_;
  while (posted_sends_ < stream_.sends.size()) {
    const bool own = posted_sends_ < stream_.own;
    if (!own && used_ <= posted_sends_ - stream_.own) break;
    if (posted_sends_ >= used_ + window_ && used_ < stream_.receives.size()) break;
    if (narrows() && out_->sent() + landings() < sent_at_start_ + posted_sends_ + 1) break;
    const auto& piece = stream_.sends[posted_sends_];
    if (own) slice_->gather(piece.first, piece.count);
    out_->send(packed(posted_sends_++), bytes_of(piece));
  }
  return posted_sends_ > before;
}

// The piece as it is sent. If two ranks exchange values, both add the rounded values, so that the
// results are equal.
const std::byte* LeaderGroup::packed(std::size_t send) {
  const auto& piece = stream_.sends[send];
  const std::size_t at = piece.first * size_of(slice_->dtype);
  if (!narrows()) return (slice_->source != nullptr ? slice_->source : slice_->data) + at;
  auto* const values = reinterpret_cast<float*>(slice_->data + at);
  auto* const narrowed = packed_.data() + send % landings() * piece_bytes;
  narrow(values, narrowed, piece.count, DType::bfloat16);
  if (stream_.mutual) widen(narrowed, values, piece.count, DType::bfloat16);
  return narrowed;
}

bool LeaderGroup::use_received() {
  const std::size_t before = used_;
  const std::size_t arrived = in_->received() - received_at_start_;
  while (used_ < arrived && may_overwrite(used_)) use(used_++);
  return used_ > before;
}

void LeaderGroup::use(std::size_t receive) {
  const auto& piece = stream_.receives[receive];
  auto* const values = reinterpret_cast<float*>(slice_->data + piece.first * size_of(slice_->dtype));
  auto* const received = landing(receive);
  if (receive >= stream_.operands) {
    if (narrows()) widen(received, values, piece.count, DType::bfloat16);
    return slice_->finish(piece.first, piece.count);
  }
  if (!stream_.mutual) slice_->gather(piece.first, piece.count);
  combine(piece, received);
  if (receive < stream_.last_operands) return;
  slice_->scale(piece.first, piece.count);
  if (narrows() && !stream_.mutual) {  // as the ranks that receive this result
    narrow(values, received, piece.count, DType::bfloat16);
    widen(received, values, piece.count, DType::bfloat16);
  }
  slice_->finish(piece.first, piece.count);
}

void LeaderGroup::combine(const ElementRange& piece, const std::byte* received) {
  constexpr std::size_t most = 1024;  // elements that stay in the first cache
  float widened[most];
  const std::size_t element = size_of(slice_->dtype), step = narrows() ? most : piece.count;
  for (std::size_t done = 0; done < piece.count; done += step) {
    const std::size_t count = std::min(step, piece.count - done);
    std::byte* own = slice_->data + (piece.first + done) * element;
    if (narrows()) widen(received + done * sizeof(BFloat16), widened, count, DType::bfloat16);
    std::array<const std::byte*, 2> inputs = {
        own, narrows() ? reinterpret_cast<const std::byte*>(widened) : received};
    if (stream_.mutual && rank_ == 1) std::swap(inputs[0], inputs[1]);  // for the same bits on both ranks
    reduce(inputs, {&own, 1}, count, slice_->dtype, slice_->op);
  }
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
