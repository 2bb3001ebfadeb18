#include "farandole/train/compression/compression_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>
#include <sstream>

#include "farandole/base/log.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/internals.h"

namespace farandole {
namespace {

// The place of a part among the parts of all ranks, as one line of text.
struct Entry {
  int rank = 0;
  CompressorState part;  // Without its bytes.

  std::size_t bytes() const {
    return std::accumulate(
        part.shape.begin(), part.shape.end(), size_of(part.dtype),
        [](std::size_t product, std::int64_t n) { return product * static_cast<std::size_t>(n); });
  }
};

std::string to_text(int rank, const CompressorState& part) {
  std::string line =
      fmt::format("{} {} {} {}", rank, part.name, static_cast<int>(part.dtype), part.shape.size());
  for (const auto extent : part.shape) line += fmt::format(" {}", extent);
  return line + '\n';
}

std::vector<Entry> from_text(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream stream(text);
  Entry entry;
  for (int dtype = 0; stream >> entry.rank >> entry.part.name >> dtype;) {
    std::size_t dimensions = 0;
    stream >> dimensions;
    entry.part.dtype = static_cast<DType>(dtype);
    entry.part.shape.resize(dimensions);
    for (auto& extent : entry.part.shape) stream >> extent;
    entries.push_back(entry);
  }
  return entries;
}

std::string gather_text(Communicator& communicator, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(communicator.size);
  const std::size_t length = own.size();
  std::vector<std::size_t> lengths(ranks);
  communicator.all_gather("length of compression state", &length, lengths.data(),
                          std::vector<std::size_t>(ranks, sizeof length));
  std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  communicator.all_gather("names of compression state", own.data(), all.data(), lengths);
  return all;
}

// Returns the bytes of the named part for each rank; 0 if a rank has none.
std::vector<std::size_t> bytes_by_rank(const std::vector<Entry>& entries, const std::string& name,
                                       int ranks) {
  std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
  for (const auto& entry : entries)
    if (entry.part.name == name) bytes[static_cast<std::size_t>(entry.rank)] = entry.bytes();
  return bytes;
}

std::set<std::string> names_of(const std::vector<Entry>& entries) {
  std::set<std::string> names;
  for (const auto& entry : entries) names.insert(entry.part.name);
  return names;
}

std::string folder(const Compression& compression, int rank) {
  return schema::compression + describe(compression) + "/" + schema::rank_folder(rank) + "/";
}

// Lists the parts of the snapshot for the ranks of this run.
std::vector<Entry> list_parts(const Snapshot& snapshot, const Compression& compression, int ranks) {
  std::vector<Entry> entries;
  for (int r = 0; r < ranks; ++r)
    for (const auto& array : snapshot.arrays)
      if (array.path.starts_with(folder(compression, r)))
        entries.push_back(
            {r, {array.path.substr(folder(compression, r).size()), array.dtype, array.shape, {}}});
  return entries;
}

void warn_of_losses(const Snapshot& snapshot, const Compression& compression, int ranks) {
  bool other = false;
  for (const auto& array : snapshot.arrays)
    other |= array.path.starts_with(schema::compression) &&
             !array.path.starts_with(schema::compression + describe(compression) + "/");
  if (other)
    log_warning("the checkpoint's gradients were compressed in another way; their residuals are dropped");
  else if (snapshot.world_size != ranks && compression.of_ranks())
    log_warning(
        "the checkpoint has {} ranks; only the compression residuals of the first {} ranks "
        "are used",
        snapshot.world_size, std::min(snapshot.world_size, ranks));
}

}  // namespace

// Handles one part after the other, so that on rank 0 at most one part of all ranks is in memory
// besides the snapshot.
void capture_compression(Session& session, const Compression& compression, const Compressor& compressor,
                         SnapshotBuilder& snapshot) {
  if (!compression.of_ranks()) return;  // on all ranks
  auto& communicator = session.internals().communicator();
  const auto own = compressor.state();
  std::string text;
  for (const auto& part : own) text += to_text(session.rank(), part);
  const auto entries = from_text(gather_text(communicator, text));
  for (const auto& name : names_of(entries)) {
    const auto bytes = bytes_by_rank(entries, name, session.size());
    const bool leads = session.rank() == 0;
    std::vector<std::byte> all(leads ? std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}) : 0);
    const CompressorState* mine = nullptr;
    for (const auto& part : own)
      if (part.name == name) mine = &part;
    const std::vector<std::size_t> nothing(bytes.size());
    std::vector<std::size_t> send(bytes.size());
    send[0] = bytes[static_cast<std::size_t>(session.rank())];
    communicator.all_to_all(name, mine != nullptr ? mine->bytes.data() : nullptr, send, all.data(),
                            leads ? bytes : nothing);
    if (!leads) continue;
    const auto* at = all.data();
    for (const auto& entry : entries) {
      if (entry.part.name != name) continue;
      const auto to =
          snapshot.add(folder(compression, entry.rank) + name, entry.part.dtype, entry.part.shape);
      std::copy_n(at, to.size(), to.begin());
      at += to.size();
    }
  }
}

void restore_compression(Session& session, const Compression& compression, Compressor& compressor,
                         const Snapshot* snapshot) {
  std::string text;
  if (snapshot != nullptr) {
    for (const auto& entry : list_parts(*snapshot, compression, session.size()))
      text += to_text(entry.rank, entry.part);
    warn_of_losses(*snapshot, compression, session.size());
  }
  session.broadcast(text);
  const auto entries = from_text(text);
  std::vector<CompressorState> own;
  for (const auto& name : names_of(entries)) {
    const auto bytes = bytes_by_rank(entries, name, session.size());
    std::vector<std::byte> all;
    for (int r = 0; snapshot != nullptr && r < session.size(); ++r)
      if (const auto* array = snapshot->find(folder(compression, r) + name))
        all.insert(all.end(), array->bytes.begin(), array->bytes.end());
    const std::vector<std::size_t> nothing(bytes.size());
    std::vector<std::size_t> receive(bytes.size());
    receive[0] = bytes[static_cast<std::size_t>(session.rank())];
    std::vector<std::byte> mine(receive[0]);
    session.internals().communicator().all_to_all(name, all.data(), session.rank() == 0 ? bytes : nothing,
                                                  mine.data(), receive);
    for (const auto& entry : entries)
      if (entry.rank == session.rank() && entry.part.name == name)
        own.push_back({name, entry.part.dtype, entry.part.shape, std::move(mine)});
  }
  session.together([&] { compressor.restore(own); });
}

}  // namespace farandole
