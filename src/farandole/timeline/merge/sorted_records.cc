#include "farandole/timeline/merge/sorted_records.h"

#include <algorithm>

namespace farandole {
namespace {

// Calls visit(index, record) for each undamaged record of a ring. Returns the number of damaged ones.
template <typename Visit>
std::uint64_t each_record(const RecorderFile& file, std::size_t slot, Visit visit) {
  const RecorderThread& thread = file.threads().at(slot);
  std::vector<Record> block(4096);
  RecordDamage damage;
  for (std::uint64_t index = thread.overwritten; index < thread.recorded;) {
    const std::size_t count = file.read_records(slot, index, block, &damage);
    for (std::size_t i = 0; i < count; ++i)
      if (block[i].kind != RecordKind::none) visit(index + i, block[i]);
    index += count;
  }
  return damage.records;
}

}  // namespace

RingFacts survey(const RecorderFile& file, std::size_t slot, Meetings& meetings) {
  RingFacts facts;
  facts.damaged = each_record(file, slot, [&](std::uint64_t, const Record& record) {
    facts.first_ns = std::min(facts.first_ns, record.start_ns);
    ++facts.by_track.at(record.track);
    if (record.kind == RecordKind::collective) meetings.add(record);
  });
  return facts;
}

SortedRecords::SortedRecords(const RecorderFile& file, std::size_t slot, std::size_t track,
                             std::uint64_t count)
    : file_(file), slot_(slot), first_(file.threads().at(slot).overwritten) {
  keys_.reserve(count);
  each_record(file, slot, [&](std::uint64_t index, const Record& record) {
    if (record.track != track || keys_.size() == count) return;
    const auto duration =
        static_cast<float>(static_cast<double>(record.end_ns) - static_cast<double>(record.start_ns));
    keys_.push_back({record.start_ns, duration, static_cast<std::uint32_t>(index - first_)});
  });
  sort(keys_);
}

// The records are in the order of their ends and therefore nearly sorted by start: a span moves back
// over the spans inside it. If this takes too many moves, for example with the streams of a GPU, an
// ordinary sort is used.
void SortedRecords::sort(std::vector<Key>& keys) {
  std::uint64_t moves = keys.size() * 16;
  for (std::size_t i = 1; i < keys.size(); ++i) {
    const Key key = keys[i];
    std::size_t to = i;
    for (; to > 0 && key < keys[to - 1]; --to) keys[to] = keys[to - 1];
    keys[to] = key;
    if (i - to > moves) return std::sort(keys.begin(), keys.end());
    moves -= i - to;
  }
}

const Record& SortedRecords::record(std::uint64_t index) {
  const std::uint64_t number = index / block_records;
  Block& block = blocks_[number % blocks_.size()];
  if (block.number != number) {
    block.records.resize(block_records);
    std::size_t there = 0;
    for (std::size_t count = 1; count > 0 && there < block_records; there += count)
      count = file_.read_records(slot_, first_ + number * block_records + there,
                                 std::span(block.records).subspan(there));
    block.number = number;
  }
  return block.records[index % block_records];
}

std::size_t SortedRecords::next(std::span<Record> into) {
  std::size_t count = 0;
  while (count < into.size() && given_ < keys_.size()) {
    into[count] = record(keys_[given_++].index);
    // A running rank may have overwritten the record since it was sorted.
    if (into[count].kind != RecordKind::none) ++count;
  }
  return count;
}

}  // namespace farandole
