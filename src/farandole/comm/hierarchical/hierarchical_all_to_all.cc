// The all-to-all of HierarchicalCommunicator.
//
// First the ranks exchange what each sends to each other rank. Small messages travel in the same exchange.
// Large ones then pass the leader groups: each node exchanges its data with one other node at a time. Two
// ranks on two nodes both know all sizes, so they compare them with the call and need one exchange only.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/comm/hierarchical/hierarchical_communicator.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

constexpr int most_ranks = 32;  // more ranks have too many sizes
// Of data in the first exchange, by rank. All ranks' sizes and data together take about as long as
// the sizes alone.
std::size_t inline_bytes(std::size_t ranks) {
  return std::max<std::size_t>(256, 8192 / ranks);
}

}  // namespace

// What each rank sends to and expects from each rank.
struct HierarchicalCommunicator::SizeTable {
  std::size_t ranks;
  std::vector<std::size_t> sends, receives;  // by rank and peer

  std::size_t sent(std::size_t from, std::size_t to) const { return sends[from * ranks + to]; }
  std::size_t sent_by(std::size_t from) const { return sum(std::span(sends).subspan(from * ranks, ranks)); }
};

void HierarchicalCommunicator::all_to_all(std::string_view name, const void* in,
                                          std::span<const std::size_t> send_bytes, void* out,
                                          std::span<const std::size_t> receive_bytes) {
  if (size > most_ranks) {
    agree(all_to_all_call(name));
    return parts_.all->all_to_all(name, in, send_bytes, out, receive_bytes);
  }
  if (size == 2) return exchange_with_peer(name, in, send_bytes, out, receive_bytes);
  begin(all_to_all_call(name));
  SizeTable table{static_cast<std::size_t>(size),
                  {send_bytes.begin(), send_bytes.end()},
                  {receive_bytes.begin(), receive_bytes.end()}};
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  attempt([&] {
    if (!exchange_sizes(table, from, to)) exchange_cells(table, from, to);
  });
}

// The call contains what the ranks send each other. A rank that sends another size to itself than it expects
// makes its call differ, so that its peer knows.
void HierarchicalCommunicator::exchange_with_peer(std::string_view name, const void* in,
                                                  std::span<const std::size_t> send_bytes, void* out,
                                                  std::span<const std::size_t> receive_bytes) {
  const std::size_t own = static_cast<std::size_t>(rank), peer = 1 - own;
  auto call = all_to_all_call(name);
  call.count = rank == 0 ? send_bytes[peer] : receive_bytes[peer];
  call.shares = rank == 0 ? receive_bytes[peer] : send_bytes[peer];
  if (send_bytes[own] != receive_bytes[own]) call.root = rank;
  begin(call);
  const auto offset = [](std::span<const std::size_t> bytes, std::size_t of) {
    return of == 0 ? 0 : bytes[0];
  };
  const auto* const from = static_cast<const std::byte*>(in);
  auto* const to = static_cast<std::byte*>(out);
  Slice slice;
  slice.dtype = DType::uint8;
  slice.source = from;
  slice.data = to;
  attempt([&] {
    exchange(slice, [&](std::size_t k, const Cut& cut) {
      std::vector<Ranges> sent(2), received(2);
      sent[peer] = {share_of(k, offset(send_bytes, peer), send_bytes[peer])};
      received[peer] = {share_of(k, offset(receive_bytes, peer), receive_bytes[peer])};
      return all_to_all_stream(own_node_, sent, received, cut);
    });
  });
  copy_bytes(to + offset(receive_bytes, own), from + offset(send_bytes, own), send_bytes[own]);
}

// Completes `table`, which contains the sizes of this rank alone. Returns true if the data of all ranks was
// so small that it came with the sizes.
bool HierarchicalCommunicator::exchange_sizes(SizeTable& table, const std::byte* in, std::byte* out) {
  const std::size_t ranks = table.ranks, own = static_cast<std::size_t>(rank);
  const std::size_t list_bytes = ranks * sizeof(std::size_t), inlined = inline_bytes(ranks),
                    box_bytes = 2 * list_bytes + inlined;
  std::vector<std::byte> boxes(ranks * box_bytes);
  auto* const box = boxes.data() + own * box_bytes;
  const std::size_t sent = sum(table.sends);
  std::memcpy(box, table.sends.data(), list_bytes);
  std::memcpy(box + list_bytes, table.receives.data(), list_bytes);
  if (sent > 0 && sent <= inlined) std::memcpy(box + 2 * list_bytes, in, sent);
  gather_by_leader(boxes.data(), boxes.size(), own * box_bytes, box_bytes);
  table.sends.resize(ranks * ranks);
  table.receives.resize(ranks * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::memcpy(&table.sends[r * ranks], boxes.data() + r * box_bytes, list_bytes);
    std::memcpy(&table.receives[r * ranks], boxes.data() + r * box_bytes + list_bytes, list_bytes);
  }
  std::size_t most = 0;
  for (std::size_t from = 0; from < ranks; ++from) {
    most = std::max(most, table.sent_by(from));
    for (std::size_t to = 0; to < ranks; ++to)
      if (table.sent(from, to) != table.receives[to * ranks + from])
        throw UserError(fmt::format(
            "all_to_all '{}' (call {}): rank {} sends {} bytes to rank {}, which expects {}", call_.name,
            call_.sequence, from, table.sent(from, to), to, table.receives[to * ranks + from]));
  }
  if (most > inlined) return false;
  for (std::size_t from = 0; from < ranks; ++from) {
    const auto before = sum(std::span(table.sends).subspan(from * ranks, own));
    const auto bytes = table.sent(from, own);
    if (bytes > 0) std::memcpy(out, boxes.data() + from * box_bytes + 2 * list_bytes + before, bytes);
    out += bytes;
  }
  return true;
}

// A cell is what one rank sends to another one. On a node with several ranks, the first one has memory for
// the cells from and to its node.
void HierarchicalCommunicator::exchange_cells(const SizeTable& table, const std::byte* in, std::byte* out) {
  const std::size_t ranks = table.ranks, own = static_cast<std::size_t>(rank);
  std::vector<std::size_t> sent_at(ranks * ranks), received_at(ranks * ranks);  // offsets of cells
  const auto& here = plan_.members[static_cast<std::size_t>(own_node_)];
  const bool alone = parts_.node == nullptr;
  std::size_t end = 0;
  for (const int i : here)
    for (std::size_t j = 0; j < ranks; ++j) {
      const auto cell = static_cast<std::size_t>(i) * ranks + j;
      sent_at[cell] = end;
      end += table.sends[cell];
    }
  if (alone) end = 0;  // received cells are in other memory than sent ones
  for (std::size_t i = 0; i < ranks; ++i)
    for (const int j : here) {
      const auto cell = i * ranks + static_cast<std::size_t>(j);
      received_at[cell] = !alone && plan_.node[i] == own_node_ ? sent_at[cell] : end;
      if (alone || plan_.node[i] != own_node_) end += table.sends[cell];
    }
  Slice slice;
  slice.dtype = DType::uint8;
  slice.data = out;
  if (alone) {
    slice.source = in;
    copy_bytes(out + received_at[own * ranks + own], in + sent_at[own * ranks + own], table.sent(own, own));
  } else {
    const bool first = own_local_ == 0;
    meet(first ? shared_.get(*parts_.node, end) : nullptr, first ? end : 0);
    slice.data = parts_.node->data_of(0);
    copy_bytes(slice.data + sent_at[own * ranks], in, table.sent_by(own));
    meet();
  }
  const auto cells = [&](const std::vector<std::size_t>& at, const std::vector<int>& from,
                         const std::vector<int>& to, std::size_t k) {
    Ranges ranges;
    for (const int i : from)
      for (const int j : to) {
        const auto cell = static_cast<std::size_t>(i) * ranks + static_cast<std::size_t>(j);
        ranges.push_back(share_of(k, at[cell], table.sends[cell]));
      }
    return ranges;
  };
  for (const std::size_t k : served_) {
    std::vector<Ranges> sent, received;
    for (const auto& there : plan_.members) {
      sent.push_back(cells(sent_at, here, there, k));
      received.push_back(cells(received_at, there, here, k));
    }
    auto& group = *parts_.leader_groups[k];
    group.start_agreed(slice, all_to_all_stream(own_node_, sent, received, group.cut(slice.wire_dtype())));
  }
  wait_for_groups();
  if (alone) return;
  meet();
  for (std::size_t i = 0; i < ranks; ++i) {
    copy_bytes(out, slice.data + received_at[i * ranks + own], table.sent(i, own));
    out += table.sent(i, own);
  }
  meet();  // the first rank may use its memory for another call
}

}  // namespace farandole
