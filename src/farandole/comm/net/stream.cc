#include "farandole/comm/net/stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

using Pieces = std::vector<ElementRange>;
using Kind = Lane::Kind;
using Messages = std::vector<Lane::Message>;

Pieces cut_up(const ElementRange& range, const Cut& cut) {
  Pieces pieces;
  for (std::size_t done = 0; done < range.count; done += cut.elements)
    pieces.push_back({range.first + done, std::min(cut.elements, range.count - done)});
  return pieces;
}

// What a rank sends to another one in an allreduce: its values of the other's part, and the results of its
// own part. A result follows as soon as it can be there if the ranks are equally fast.
Messages operands_and_results(const Pieces& others_part, const Pieces& own_part, std::size_t window) {
  Messages all;
  for (std::size_t next = 0; next < std::max(others_part.size(), own_part.size() + window); ++next) {
    if (next >= window && next - window < own_part.size())
      all.push_back({own_part[next - window], Kind::result});
    if (next < others_part.size()) all.push_back({others_part[next], Kind::operand});
  }
  return all;
}

// Elements that are combined at once; those of some ranks fit the first cache.
constexpr std::size_t block_elements = 2048;

// As a rank that receives these values. At most block_elements.
void round_to_bfloat16(float* values, std::size_t count) {
  std::array<std::byte, block_elements * sizeof(BFloat16)> narrowed;
  narrow(values, narrowed.data(), count, DType::bfloat16);
  widen(narrowed.data(), values, count, DType::bfloat16);
}

}  // namespace

ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts) {
  constexpr std::size_t aligned = 64;
  const auto first_of = [&](std::size_t which) {
    return std::min(count, (count * which / parts + aligned - 1) / aligned * aligned);
  };
  return {first_of(part), first_of(part + 1) - first_of(part)};
}

// Two ranks exchange all of their values at once. Each rank begins with the rank after it, so that they do
// not all send to the same one at first.
Stream allreduce_stream(int rank, int size, std::size_t count, const Cut& cut) {
  const auto ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const bool mutual = size == 2;
  std::vector<Pieces> parts;
  for (std::size_t part = 0; part < ranks; ++part)
    parts.push_back(cut_up(mutual ? ElementRange{0, count} : part_of(count, part, ranks), cut));
  Stream stream{.lanes = {}, .part = parts[own], .cut = cut, .mutual = mutual};
  for (std::size_t distance = 1; distance < ranks; ++distance) {
    const std::size_t peer = (own + distance) % ranks;
    const Pieces results = mutual ? Pieces() : parts[own], theirs = mutual ? Pieces() : parts[peer];
    stream.lanes.push_back({.peer = static_cast<int>(peer),
                            .sends = operands_and_results(parts[peer], results, cut.window),
                            .receives = operands_and_results(parts[own], theirs, cut.window)});
  }
  return stream;
}

void reduce_in_tree(std::span<std::byte*> inputs, std::byte* out, std::size_t count, DType dtype,
                    ReduceOp op) {
  const std::size_t paired = std::bit_floor(inputs.size());
  const auto join = [&](std::size_t a, std::size_t b, std::byte* to) {
    const std::array<const std::byte*, 2> pair = {inputs[a], inputs[b]};
    reduce(pair, {&to, 1}, count, dtype, op);
  };
  for (std::size_t rank = paired; rank < inputs.size(); ++rank)
    join(rank - paired, rank, inputs[rank - paired]);
  for (std::size_t bit = 1; bit < paired; bit *= 2)
    for (std::size_t rank = 0; rank < paired; rank += 2 * bit)
      join(rank, rank + bit, 2 * bit == paired ? out : inputs[rank]);
}

void StreamExchange::start(int rank, Slice& slice, Stream stream,
                           std::span<const std::unique_ptr<Link>> links) {
  rank_ = rank;
  slice_ = &slice;
  stream_ = std::move(stream);
  routes_.clear();
  for (const auto& lane : stream_.lanes) {
    auto* const link = links[static_cast<std::size_t>(lane.peer)].get();
    routes_.push_back(
        {.link = link, .sent_before = link->sent() + 1, .received_before = link->received() + 1});
  }
  done_ = 0;
  const std::size_t waiting = routes_.size() * slots();
  landings_.resize(std::max(landings_.size(), waiting * slot_bytes()));
  if (narrows()) {
    packed_.resize(std::max(packed_.size(), (waiting + slots()) * slot_bytes()));
    widened_.resize((routes_.size() + 1) * block_elements);
  }
  operands_.resize(links.size());
}

void StreamExchange::stop() {
  slice_ = nullptr;
  stream_ = {};
  routes_.clear();
}

bool StreamExchange::post() {
  bool posted = false;
  for (std::size_t lane = 0; lane < routes_.size(); ++lane) {
    posted = post_receives(lane) || posted;
    posted = post_sends(lane) || posted;
  }
  return posted;
}

bool StreamExchange::post_sends(std::size_t lane) {
  auto& route = routes_[lane];
  const auto& sends = stream_.lanes[lane].sends;
  const std::size_t before = route.sends_posted;
  for (; route.sends_posted < sends.size() && may_send(lane, sends[route.sends_posted]);
       ++route.sends_posted) {
    const auto& message = sends[route.sends_posted];
    if (message.kind == Kind::operand) slice_->gather(message.piece.first, message.piece.count);
    route.link->send(packed(lane, message), bytes_of(message.piece));
    ++(message.kind == Kind::result ? route.results_posted : route.operands_posted);
  }
  return route.sends_posted > before;
}

// Few pieces are in flight, so that they stay in the caches.
bool StreamExchange::may_send(std::size_t lane, const Lane::Message& message) const {
  const auto& route = routes_[lane];
  if (message.kind == Kind::result) return route.results_posted < done_;
  if (narrows() && route.operands_posted >= route.operands_complete + slots()) return false;
  return done_ == stream_.part.size() || route.operands_posted < done_ + stream_.cut.window;
}

// A result replaces the values that were sent to be combined.
bool StreamExchange::post_receives(std::size_t lane) {
  auto& route = routes_[lane];
  const auto& receives = stream_.lanes[lane].receives;
  const std::size_t before = route.receives_posted;
  const std::size_t end = std::min(receives.size(), route.used + slots());
  for (; route.receives_posted < end; ++route.receives_posted) {
    const auto& message = receives[route.receives_posted];
    if (message.kind == Kind::result) {
      if (route.results_posted_for >= route.operands_complete) break;
      ++route.results_posted_for;
    }
    const bool in_place = message.kind != Kind::operand && !narrows();
    route.link->receive(in_place ? place_of(message.piece) : landing(lane, route.receives_posted),
                        bytes_of(message.piece));
  }
  return route.receives_posted > before;
}

bool StreamExchange::use() {
  bool used = false;
  for (std::size_t lane = 0; lane < routes_.size(); ++lane) {
    count_complete(lane);
    used = use_results(lane) || used;
  }
  for (; next_operands_are_here(); used = true) {
    combine_next();
    for (std::size_t lane = 0; lane < routes_.size(); ++lane) use_results(lane);
  }
  for (std::size_t lane = 0; lane < routes_.size(); ++lane) {
    auto& route = routes_[lane];
    const auto& [peer, sends, receives] = stream_.lanes[lane];
    route.finished = route.used == receives.size() && route.link->sent() >= route.sent_before + sends.size();
  }
  return used;
}

void StreamExchange::count_complete(std::size_t lane) {
  auto& route = routes_[lane];
  for (; route.sends_complete < route.sent(); ++route.sends_complete)
    ++(stream_.lanes[lane].sends[route.sends_complete].kind == Kind::result ? route.results_complete
                                                                            : route.operands_complete);
}

bool StreamExchange::use_results(std::size_t lane) {
  auto& route = routes_[lane];
  const auto& receives = stream_.lanes[lane].receives;
  const std::size_t before = route.used;
  for (; route.used < route.arrived() && receives[route.used].kind != Kind::operand; ++route.used) {
    const auto& piece = receives[route.used].piece;
    if (narrows())
      widen(landing(lane, route.used), reinterpret_cast<float*>(place_of(piece)), piece.count,
            DType::bfloat16);
    slice_->finish(piece.first, piece.count);
  }
  return route.used > before;
}

// If both ranks combine the same piece, its memory may change only after this rank has sent it, or has
// narrowed it for sending.
bool StreamExchange::next_operands_are_here() const {
  if (done_ == stream_.part.size()) return false;
  for (std::size_t lane = 0; lane < routes_.size(); ++lane) {
    const auto& route = routes_[lane];
    if (route.used == route.arrived() || stream_.lanes[lane].receives[route.used].kind != Kind::operand)
      return false;
    if (stream_.mutual && (narrows() ? route.operands_posted : route.operands_complete) <= done_)
      return false;
    if (sends_narrow_results() && route.results_complete + slots() <= done_) return false;
  }
  return true;
}

void StreamExchange::combine_next() {
  const auto& piece = stream_.part[done_];
  if (!stream_.mutual) slice_->gather(piece.first, piece.count);
  for (std::size_t first = 0; first < piece.count; first += block_elements)
    combine(piece, first, std::min(block_elements, piece.count - first));
  slice_->scale(piece.first, piece.count);
  if (sends_narrow_results()) {
    auto* const values = reinterpret_cast<float*>(place_of(piece));
    narrow(values, packed_result(done_), piece.count, DType::bfloat16);
    widen(packed_result(done_), values, piece.count, DType::bfloat16);
  }
  slice_->finish(piece.first, piece.count);
  for (auto& route : routes_) ++route.used;
  ++done_;
}

// Combines `count` elements from element `first` of the piece on. Values of this rank are rounded as those
// that came from other ranks, so that it does not matter who combines them.
void StreamExchange::combine(const ElementRange& piece, std::size_t first, std::size_t count) {
  auto* const own_values = place_of(piece) + first * size_of(slice_->dtype);
  if (narrows() && stream_.mutual)
    return add_bfloat16(landing(0, routes_[0].used) + first * sizeof(BFloat16),
                        reinterpret_cast<float*>(own_values), count);
  operands_[static_cast<std::size_t>(rank_)] = own_values;
  if (narrows()) round_to_bfloat16(reinterpret_cast<float*>(own_values), count);
  for (std::size_t lane = 0; lane < routes_.size(); ++lane) {
    auto& values = operands_[static_cast<std::size_t>(stream_.lanes[lane].peer)];
    values = landing(lane, routes_[lane].used) + first * size_of(slice_->wire_dtype());
    if (!narrows()) continue;
    auto* const widened = widened_.data() + lane * block_elements;
    widen(values, widened, count, DType::bfloat16);
    values = reinterpret_cast<std::byte*>(widened);
  }
  reduce_in_tree(operands_, own_values, count, slice_->dtype, slice_->op);
}

std::size_t StreamExchange::bytes_of(const ElementRange& piece) const {
  return piece.count * size_of(slice_->wire_dtype());
}

// Returns what is sent: the values themselves, or a copy that is narrowed to bfloat16.
const std::byte* StreamExchange::packed(std::size_t lane, const Lane::Message& message) {
  const auto& route = routes_[lane];
  const std::size_t at = message.piece.first * size_of(slice_->dtype);
  if (!narrows()) return slice_->data + at;
  if (message.kind == Kind::result) return packed_result(route.results_posted);
  auto* const narrowed = packed_.data() + (lane * slots() + route.operands_posted % slots()) * slot_bytes();
  narrow(reinterpret_cast<const float*>(slice_->data + at), narrowed, message.piece.count, DType::bfloat16);
  return narrowed;
}

std::byte* StreamExchange::packed_result(std::size_t result) {
  return packed_.data() + (routes_.size() * slots() + result % slots()) * slot_bytes();
}

std::byte* StreamExchange::landing(std::size_t lane, std::size_t receive) {
  return landings_.data() + (lane * slots() + receive % slots()) * slot_bytes();
}

void StreamExchange::add_active(std::vector<Link*>& links) const {
  for (const auto& route : routes_)
    if (!route.finished) links.push_back(route.link);
}

}  // namespace farandole
