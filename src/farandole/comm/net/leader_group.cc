#include "farandole/comm/net/leader_group.h"

#include <algorithm>
#include <bit>

#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

constexpr std::size_t message_bytes = std::size_t{128} << 10;

}  // namespace

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

// Two ranks exchange all of their values at once. More ranks first compare their calls and then use the ring
// allreduce (Patarasu and Yuan, 2009): the data is split into one chunk per rank, and chunks are sent from
// each rank to the next. In the first size - 1 steps, a rank adds its own values to the chunk that it
// receives. Then the chunks are complete and travel around the ring once more.
void LeaderGroup::start(std::uint64_t call_hash, Slice& slice) {
  slice_ = &slice;
  if (size_ > 2) return start_small(call_hash, false, nullptr, 0, slice.dtype, slice.op);
  call_hash_ = call_hash;
  mismatch_ = false;
  enter_stream();
}

void LeaderGroup::cut_stream() {
  const Slice& slice = *slice_;
  const std::size_t element = size_of(slice.dtype), line = 64 / element, most = message_bytes / element;
  const auto cut = [&](std::vector<Piece>& pieces, std::size_t first, std::size_t end) {
    for (; first < end; first += most) pieces.push_back({first, std::min(most, end - first)});
  };
  sends_.clear();
  receives_.clear();
  sent_before_.clear();
  if (size_ == 2) {
    cut(sends_, 0, slice.count);
    receives_ = sends_;
    own_pieces_ = operands_ = sends_.size();
    last_operands_ = 0;
    for (std::size_t i = 0; i < receives_.size(); ++i) sent_before_.push_back(i + 1);
    return;
  }
  const auto ranks = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  const auto first_of = [&](std::size_t chunk) {
    return std::min(slice.count, (slice.count * chunk / ranks + line - 1) / line * line);
  };
  const auto cut_chunk = [&](std::vector<Piece>& pieces, std::size_t chunk) {
    cut(pieces, first_of(chunk), first_of(chunk + 1));
  };
  std::vector<std::size_t> begin_of_send_step = {0};
  cut_chunk(sends_, own);
  own_pieces_ = sends_.size();
  for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
    const std::size_t chunk = (own + 2 * ranks - 1 - step) % ranks, before = receives_.size();
    if (step == ranks - 2) last_operands_ = before;
    if (step == ranks - 1) operands_ = before;
    cut_chunk(receives_, chunk);
    // A result overwrites the values that were sent `ranks` - 1 steps before.
    for (std::size_t i = before; i < receives_.size(); ++i)
      sent_before_.push_back(step < ranks - 1 ? 0 : begin_of_send_step[step + 1 - ranks] + i - before + 1);
    begin_of_send_step.push_back(sends_.size());
    if (step + 1 < 2 * (ranks - 1))
      sends_.insert(sends_.end(), receives_.begin() + static_cast<std::ptrdiff_t>(before), receives_.end());
  }
}

void LeaderGroup::enter_stream() {
  phase_ = Phase::stream;
  cut_stream();
  posted_sends_ = posted_receives_ = used_ = 0;
  const auto ranks = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);
  out_ = links_[(own + 1) % ranks].get();
  in_ = links_[(own + ranks - 1) % ranks].get();
  active_.assign(1, out_);
  if (in_ != out_) active_.push_back(in_);
  scratch_.resize(std::max(scratch_.size(), landings() * message_bytes));
  sent_at_start_ = out_->sent();
  received_at_start_ = in_->received();
  header_pending_ = size_ == 2;
  if (!header_pending_) return;
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
  bool moved = post_receives();
  moved = post_sends() || moved;
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
  if (used_ == receives_.size() && out_->sent() == sent_at_start_ + sends_.size()) {
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

std::byte* LeaderGroup::landing(std::size_t receive) {
  return scratch_.data() + receive % landings() * message_bytes;
}

bool LeaderGroup::post_receives() {
  const std::size_t before = posted_receives_, element = size_of(slice_->dtype);
  for (; posted_receives_ < std::min(receives_.size(), used_ + landings()); ++posted_receives_)
    in_->receive(landing(posted_receives_), receives_[posted_receives_].count * element);
  return posted_receives_ > before;
}

bool LeaderGroup::post_sends() {
  const std::size_t before = posted_sends_, element = size_of(slice_->dtype);
  while (posted_sends_ < sends_.size()) {
    const bool own = posted_sends_ < own_pieces_;
    if (!own && used_ <= posted_sends_ - own_pieces_) break;
    if (posted_sends_ >= used_ + window_ && used_ < receives_.size()) break;
    const auto& piece = sends_[posted_sends_++];
    if (own) slice_->gather(piece.first, piece.count);
    out_->send(slice_->data + piece.first * element, piece.count * element);
  }
  return posted_sends_ > before;
}

bool LeaderGroup::use_received() {
  const std::size_t before = used_;
  const std::size_t arrived = in_->received() - received_at_start_;
  while (used_ < arrived && out_->sent() >= sent_at_start_ + sent_before_[used_]) use(used_++);
  return used_ > before;
}

void LeaderGroup::use(std::size_t receive) {
  const auto& piece = receives_[receive];
  const std::size_t element = size_of(slice_->dtype);
  std::byte* own = slice_->data + piece.first * element;
  const std::byte* const received = landing(receive);
  if (receive >= operands_) {
    std::copy_n(received, piece.count * element, own);
    return slice_->finish(piece.first, piece.count, true);
  }
  if (size_ > 2) slice_->gather(piece.first, piece.count);
  std::array<const std::byte*, 2> inputs = {own, received};
  if (size_ == 2 && rank_ == 1) std::swap(inputs[0], inputs[1]);  // for the same bits on both ranks
  reduce(inputs, {&own, 1}, piece.count, slice_->dtype, slice_->op);
  if (receive >= last_operands_) slice_->finish(piece.first, piece.count, false);
}

}  // namespace farandole
