#include "farandole/comm/control/control_communicator.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

// The parts of some ranks in one message: number of the rank, length, bytes.
struct PartHead {
  std::uint64_t rank = 0, bytes = 0;
};

void append_part(std::vector<std::byte>& to, std::size_t rank, std::span<const std::byte> part) {
  const PartHead head{rank, part.size()};
  const auto bytes = byte_view(head);
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.insert(to.end(), part.begin(), part.end());
}

void take_parts(std::span<const std::byte> from, Parts& to) {
  while (from.size() >= sizeof(PartHead)) {
    PartHead head;
    std::memcpy(&head, from.data(), sizeof head);
    const auto part = from.subspan(sizeof head, head.bytes);
    to[head.rank].assign(part.begin(), part.end());
    from = from.subspan(sizeof head + head.bytes);
  }
}

std::span<const std::byte> bytes_at(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

}  // namespace

ControlCommunicator::ControlCommunicator(ControlPlane& control, std::vector<int> of_ranks)
    : Communicator(place_of(control.rank(), of_ranks), static_cast<int>(of_ranks.size())),
      channel_(control, std::move(of_ranks)) {
  const auto node_of = [&](int r) {
    return control.ranks()[static_cast<std::size_t>(ranks()[static_cast<std::size_t>(r)])].node;
  };
  std::map<std::uint64_t, int> leader_of;
  for (int r = 0; r < size; ++r) {
    const auto [leader, is_first] = leader_of.try_emplace(node_of(r), r);
    if (is_first) leaders_.push_back(r);
    if (leader->second == rank && r != rank) mates_.push_back(r);
  }
  leader_ = leader_of[node_of(rank)];
}

// The ranks of a node send to its first rank, these to the first of all, and the answer goes back.
std::vector<std::vector<std::byte>> ControlCommunicator::exchange(std::span<const std::byte> own) {
  std::vector<std::byte> message;
  append_part(message, static_cast<std::size_t>(rank), own);
  const auto collect = [&](int from) {
    const auto part = channel_.receive(from);
    message.insert(message.end(), part.begin(), part.end());
  };
  for (const int mate : mates_) collect(mate);
  const bool is_first = rank == leaders_.front();
  if (is_first) {
    for (std::size_t i = 1; i < leaders_.size(); ++i) collect(leaders_[i]);
    for (std::size_t i = 1; i < leaders_.size(); ++i) channel_.send(leaders_[i], message);
  } else {
    const int above = rank == leader_ ? leaders_.front() : leader_;
    channel_.send(above, message);
    message = channel_.receive(above);
  }
  for (const int mate : mates_) channel_.send(mate, message);
  Parts parts(static_cast<std::size_t>(size));
  take_parts(message, parts);
  return parts;
}

void ControlCommunicator::allreduce(std::string_view, void* data, std::size_t count, DType dtype,
                                    ReduceOp op) {
  check_reduction(op, dtype);
  const auto parts = exchange(bytes_at(data, count * size_of(dtype)));
  std::vector<const std::byte*> inputs;
  for (const auto& part : parts) inputs.push_back(part.data());
  auto* const output = static_cast<std::byte*>(data);
  reduce(inputs, std::span(&output, 1), count, dtype, op);
}

void ControlCommunicator::all_gather(std::string_view, const void* in, void* out,
                                     std::span<const std::size_t> bytes_by_rank) {
  const auto parts = exchange(bytes_at(in, bytes_by_rank[static_cast<std::size_t>(rank)]));
  auto* at = static_cast<std::byte*>(out);
  for (const auto& part : parts) at = std::copy(part.begin(), part.end(), at);
}

void ControlCommunicator::broadcast(std::string_view, void* data, std::size_t bytes, int root) {
  check_root(root, size);
  const auto parts = exchange(bytes_at(data, rank == root ? bytes : 0));
  std::ranges::copy(parts[static_cast<std::size_t>(root)], static_cast<std::byte*>(data));
}

void ControlCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                         std::span<const std::size_t> count_by_rank, DType dtype,
                                         ReduceOp op) {
  const auto own = static_cast<std::size_t>(rank);
  const auto all = bytes_at(in, sum(count_by_rank) * size_of(dtype));
  std::vector<std::byte> values(all.begin(), all.end());
  allreduce(name, values.data(), sum(count_by_rank), dtype, op);
  std::ranges::copy(std::span(values).subspan(sum(count_by_rank.first(own)) * size_of(dtype),
                                              count_by_rank[own] * size_of(dtype)),
                    static_cast<std::byte*>(out));
}

// Each rank receives what all send to all, and its own part is the piece for it in what each rank sends.
void ControlCommunicator::all_to_all(std::string_view, const void* in,
                                     std::span<const std::size_t> send_bytes, void* out,
                                     std::span<const std::size_t> receive_bytes) {
  std::vector<std::byte> own;
  auto rest = bytes_at(in, sum(send_bytes));
  for (std::size_t to = 0; to < send_bytes.size(); rest = rest.subspan(send_bytes[to++]))
    append_part(own, to, rest.first(send_bytes[to]));
  auto* at = static_cast<std::byte*>(out);
  Parts pieces(send_bytes.size());
  const auto all = exchange(own);
  for (std::size_t from = 0; from < all.size(); ++from) {
    take_parts(all[from], pieces);
    const auto& piece = pieces[static_cast<std::size_t>(rank)];
    at = std::copy_n(piece.begin(), std::min(piece.size(), receive_bytes[from]), at);
  }
}

}  // namespace farandole
