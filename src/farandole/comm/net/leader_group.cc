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
    : rank_(rank), size_(size), links_(std::move(links)), peers_(links_.size()) {
  using enum Round::Receives;
  const auto paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= paired) {
    rounds_ = {{rank - paired, true, result}};
    return;
  }
  const bool has_extra = rank + paired < size;
  if (has_extra) rounds_.push_back({rank + paired, false, operand});
  for (int bit = 1; bit < paired; bit *= 2) rounds_.push_back({rank ^ bit, true, operand});
  if (has_extra) rounds_.push_back({rank + paired, true, nothing});
}

void LeaderGroup::begin(std::uint64_t call_hash) {
  call_hash_ = call_hash;
  mismatch_ = false;
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      peers_[static_cast<std::size_t>(r)] =
          Peer{.sent_before = link_to(r).sent(), .received_before = link_to(r).received()};
}

void LeaderGroup::start_small(std::uint64_t call_hash, bool mismatch, std::byte* data, std::size_t count,
                              DType dtype, ReduceOp op) {
  begin(call_hash);
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
  Link& link = link_to(round.peer);
  Peer& peer = peers_[static_cast<std::size_t>(round.peer)];
  active_.assign(1, &link);
  peer.received_before = link.received();
  const std::size_t bytes = count_ * size_of(dtype_);
  if (round.sends) {
    peer.sent_before = link.sent();
    own_header_ = {call_hash_, mismatch_ ? 1u : 0u, mismatch_ || bytes == 0 ? 0u : 1u};
    peer.told = true;
    link.send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
    if (own_header_.has_data != 0) link.send(data_, bytes);
  }
  if (round.receives != Round::Receives::nothing) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    link.receive(reinterpret_cast<std::byte*>(&peer.header), sizeof peer.header);
    if (bytes > 0) link.receive(scratch_.data(), bytes);
  }
}

bool LeaderGroup::advance_round() {
  const Round& round = rounds_[round_];
  Link& link = link_to(round.peer);
  const Peer& peer = peers_[static_cast<std::size_t>(round.peer)];
  const bool moved = link.progress();
  const bool data = count_ > 0;
  const auto sent = link.sent() - peer.sent_before, received = link.received() - peer.received_before;
  if (round.sends && sent == 0) return moved;
  if (round.receives != Round::Receives::nothing) {
    if (received == 0) return moved;
    if (mismatch_ || differs(peer.header, data)) {
      // The peer's data may have any size, or may never come. The communicator is not used after this call.
      mismatch_ = true;
      link.abandon();
      leave_round();
      return true;
    }
    if (received < (data ? 2u : 1u)) return moved;
  }
  if (round.sends && sent < (own_header_.has_data != 0 ? 2u : 1u)) return moved;
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
  if (!mismatch_) return;
  own_header_ = {call_hash_, 1, 0};
  tell_all();
}

bool LeaderGroup::differs(const Header& header, bool has_data) const {
  return header.call_hash != call_hash_ || header.mismatch != 0 || (header.has_data != 0) != has_data;
}

void LeaderGroup::start(std::uint64_t call_hash, Slice& slice, Stream stream) {
  begin(call_hash);
  greet();
  exchange_.start(rank_, slice, std::move(stream), links_);
  phase_ = Phase::stream;
  find_active();
}

void LeaderGroup::find_active() {
  active_.clear();
  if (headers_missing_ == 0) return exchange_.add_active(active_);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) active_.push_back(&link_to(r));
}

// Every rank receives the header of every other rank in front of its data.
void LeaderGroup::greet() {
  headers_missing_ = size_ - 1;
  own_header_ = {call_hash_, 0, 1};
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    peer.told = true;
    link_to(r).send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
    link_to(r).receive(reinterpret_cast<std::byte*>(&peer.header), sizeof peer.header);
  }
}

bool LeaderGroup::advance() {
  if (phase_ == Phase::exchange) return advance_round();
  if (phase_ == Phase::stream) return advance_stream();
  if (phase_ == Phase::telling) return advance_telling();
  if (phase_ == Phase::messages) return advance_messages();
  return false;
}

std::size_t LeaderGroup::start_messages(int to, const Messages& sends, int from, const Messages& receives) {
  if (!busy()) begin(call_hash_);
  std::size_t bytes = 0;
  const auto start = [&](int rank, const Messages& messages, auto function) {
    std::uint64_t started = 0;
    for (const auto& message : messages) {
      if (message.empty()) continue;
      function(link_to(rank), message);
      bytes += message.size();
      ++started;
    }
    if (started > 0) active_.push_back(&link_to(rank));
    return started;
  };
  peers_[static_cast<std::size_t>(to)].sends +=
      start(to, sends, [](Link& link, const auto& message) { link.send(message.data(), message.size()); });
  peers_[static_cast<std::size_t>(from)].receives += start(
      from, receives, [](Link& link, const auto& message) { link.receive(message.data(), message.size()); });
  if (bytes > 0) phase_ = Phase::messages;
  return bytes;
}

bool LeaderGroup::advance_messages() {
  bool moved = false;
  active_.clear();
  for (int r = 0; r < size_; ++r) {
    const auto& peer = peers_[static_cast<std::size_t>(r)];
    const auto is_complete = [&] {
      return link_to(r).sent() == peer.sent_before + peer.sends &&
             link_to(r).received() == peer.received_before + peer.receives;
    };
    if (r == rank_ || is_complete()) continue;
    moved = link_to(r).progress() || moved;
    if (!is_complete()) active_.push_back(&link_to(r));
  }
  if (active_.empty()) phase_ = Phase::idle;
  return moved || active_.empty();
}

bool LeaderGroup::advance_stream() {
  bool moved = false;
  if (headers_missing_ == 0 || active_.front()->abandons_at_once()) moved = exchange_.post();
  for (auto* const link : active_) moved = link->progress() || moved;
  if (headers_missing_ > 0 && !check_headers()) {
    tell_all();
    return true;
  }
  moved = exchange_.use() || moved;
  find_active();
  if (!active_.empty()) return moved;
  exchange_.stop();
  phase_ = Phase::idle;
  return true;
}

// Checks the headers that have arrived. Returns false if a rank makes another call.
bool LeaderGroup::check_headers() {
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r == rank_ || peer.heard || link_to(r).received() == peer.received_before) continue;
    if (differs(peer.header, true)) return false;
    peer.heard = true;
    --headers_missing_;
  }
  return true;
}

void LeaderGroup::refuse(std::uint64_t call_hash) {
  if (call_hash_ != call_hash) return start_small(call_hash, true, nullptr, 0, DType::uint8, ReduceOp::sum);
  if (phase_ == Phase::stream) tell_all();
}

// The calls differ. Ranks that have no header of this rank yet may wait for it. Everything else is dropped.
void LeaderGroup::tell_all() {
  exchange_.stop();
  mismatch_ = true;
  headers_missing_ = 0;
  phase_ = Phase::telling;
  for (int r = 0; r < size_; ++r) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (r == rank_ || peer.told) continue;
    peer.sent_before = link_to(r).sent();
    link_to(r).send(reinterpret_cast<const std::byte*>(&own_header_), sizeof own_header_);
  }
  advance_telling();
}

bool LeaderGroup::advance_telling() {
  bool moved = false;
  active_.clear();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    Link& link = link_to(r);
    moved = link.progress() || moved;
    if (link.sent() > peers_[static_cast<std::size_t>(r)].sent_before)
      link.abandon();
    else
      active_.push_back(&link);
  }
  if (active_.empty()) phase_ = Phase::idle;
  return moved || active_.empty();
}

void LeaderGroup::abandon() {
  for (const auto& link : links_)
    if (link != nullptr) link->abandon();
}

void LeaderGroup::keep_moving() {
  for (const auto& link : links_)
    if (link != nullptr) link->keep_moving();
}

std::size_t LeaderGroup::piece_bytes(int size) {
  constexpr std::size_t least = std::size_t{16} << 10, most = std::size_t{128} << 10;
  return std::max(least, std::bit_floor(most / static_cast<std::size_t>(std::max(size - 1, 1))));
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
