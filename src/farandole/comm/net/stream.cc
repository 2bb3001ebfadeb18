#include "farandole/comm/net/stream.h"

#include <algorithm>

namespace farandole {
namespace {

void cut(std::vector<ElementRange>& pieces, const Ranges& parts, std::size_t most) {
  for (const auto& part : parts)
    for (std::size_t done = 0; done < part.count; done += most)
      pieces.push_back({part.first + done, std::min(most, part.count - done)});
}

// Chunks of data on their way around a ring of ranks. Each rank first sends one of its chunks, and then the
// chunks that it receives.
struct Ring {
  // The rank first sends the chunk of rank `first`. There is one receive for each of `steps`.
  Ring(int rank, std::span<const Ranges> chunks, std::size_t first, std::size_t steps, std::size_t most) {
    const std::size_t ranks = chunks.size(), own = static_cast<std::size_t>(rank);
    stream.to = static_cast<int>((own + 1) % ranks);
    stream.from = static_cast<int>((own + ranks - 1) % ranks);
    cut(stream.sends, chunks[first], most);
    stream.own = stream.sends.size();
    begin_of_send.push_back(0);
    for (std::size_t step = 0; step < steps; ++step) {
      const auto& chunk = chunks[(first + 2 * ranks - 1 - step) % ranks];
      begin_of_receive.push_back(stream.receives.size());
      begin_of_send.push_back(stream.sends.size());
      cut(stream.receives, chunk, most);
      if (step + 1 < steps) cut(stream.sends, chunk, most);
    }
    stream.sent_before.resize(stream.receives.size());
    begin_of_receive.push_back(stream.receives.size());
  }

  Stream stream;
  std::vector<std::size_t> begin_of_send, begin_of_receive;  // by step
};

}  // namespace

ElementRange part_of(std::size_t count, std::size_t part, std::size_t parts) {
  constexpr std::size_t aligned = 64;
  const auto first_of = [&](std::size_t which) {
    return std::min(count, (count * which / parts + aligned - 1) / aligned * aligned);
  };
  return {first_of(part), first_of(part + 1) - first_of(part)};
}

// Two ranks exchange all of their values at once. More ranks use the ring allreduce (Patarasu and Yuan,
// 2009): the data is split into one chunk per rank, and chunks are sent from each rank to the next. In the
// first size - 1 steps, a rank adds its own values to the chunk that it receives. Then the chunks are
// complete and travel around the ring once more.
Stream allreduce_stream(int rank, int size, std::size_t count, std::size_t most) {
  if (size == 2) {
    auto stream = exchange_stream(1 - rank, {{0, count}}, 1 - rank, {{0, count}}, most);
    stream.own = stream.operands = stream.receives.size();
    stream.mutual = true;
    for (std::size_t i = 0; i < stream.receives.size(); ++i) stream.sent_before[i] = i + 1;
    return stream;
  }
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<Ranges> chunks;
  for (std::size_t chunk = 0; chunk < ranks; ++chunk) chunks.push_back({part_of(count, chunk, ranks)});
  Ring ring(rank, chunks, static_cast<std::size_t>(rank), 2 * (ranks - 1), most);
  auto& stream = ring.stream;
  stream.last_operands = ring.begin_of_receive[ranks - 2];
  stream.operands = ring.begin_of_receive[ranks - 1];
  // A result overwrites the values that were sent `ranks` - 1 steps before.
  for (std::size_t step = ranks - 1; step < 2 * (ranks - 1); ++step)
    for (std::size_t i = ring.begin_of_receive[step]; i < ring.begin_of_receive[step + 1]; ++i)
      stream.sent_before[i] = ring.begin_of_send[step + 1 - ranks] + i - ring.begin_of_receive[step] + 1;
  return std::move(stream);
}

Stream reduce_scatter_stream(int rank, std::span<const Ranges> parts, std::size_t most) {
  const std::size_t ranks = parts.size(), own = static_cast<std::size_t>(rank);
  Ring ring(rank, parts, (own + ranks - 1) % ranks, ranks - 1, most);
  ring.stream.last_operands = ring.begin_of_receive[ranks - 2];
  ring.stream.operands = ring.stream.receives.size();
  return std::move(ring.stream);
}

Stream all_gather_stream(int rank, std::span<const Ranges> parts, std::size_t most) {
  return std::move(Ring(rank, parts, static_cast<std::size_t>(rank), parts.size() - 1, most).stream);
}

// A chain of ranks, which begins at the root.
Stream broadcast_stream(int rank, int size, int root, const Ranges& data, std::size_t most) {
  const bool sends = (rank + 1) % size != root, receives = rank != root;
  auto stream = exchange_stream((rank + 1) % size, sends ? data : Ranges(), (rank + size - 1) % size,
                                receives ? data : Ranges(), most);
  if (receives) stream.own = 0;
  return stream;
}

Stream exchange_stream(int to, const Ranges& sent, int from, const Ranges& received, std::size_t most) {
  Stream stream{.to = to, .from = from, .sends = {}, .receives = {}, .sent_before = {}};
  cut(stream.sends, sent, most);
  cut(stream.receives, received, most);
  stream.sent_before.resize(stream.receives.size());
  stream.own = stream.sends.size();
  return stream;
}

}  // namespace farandole
