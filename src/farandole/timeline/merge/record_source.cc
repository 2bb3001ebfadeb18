#include "farandole/timeline/merge/record_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"

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

// The result of one pass over the records of a thread's ring.
struct RingFacts {
  std::int64_t first_ns = INT64_MAX;  // earliest start
  std::int64_t last_ns = INT64_MIN;   // latest end
  std::uint64_t damaged = 0;
  std::array<std::uint64_t, recorder::thread_slots> by_track{};  // number of records per track
};

RingFacts survey(const RecorderFile& file, std::size_t slot, Meetings& meetings) {
  RingFacts facts;
  facts.damaged = each_record(file, slot, [&](std::uint64_t, const Record& record) {
    facts.first_ns = std::min(facts.first_ns, record.start_ns);
    facts.last_ns = std::max(facts.last_ns, record.end_ns);
    ++facts.by_track.at(record.track);
    if (record.kind == RecordKind::collective) meetings.add(record);
  });
  return facts;
}

// The records of one thread of a recorder's file, sorted in bounded memory: by start and, for the same start,
// by duration, longest first, so that a span comes before the spans inside it. Needs 16 bytes per record and
// 4 MiB. The records themselves are read again when they are needed; because threads record spans when they
// end, records that are close in the file are needed at nearly the same time.
class SortedRecords {
 public:
  // Selects the records of thread `slot` for `track`. `count` is their number as counted by survey().
  SortedRecords(const RecorderFile& file, std::size_t slot, std::size_t track, std::uint64_t count);

  // Returns the number of records written to `into`; 0 means the end.
  std::size_t next(std::span<Record> into);

 private:
  struct Key {
    std::int64_t start_ns;
    float duration_ns;    // rounded; for equal values, the later recorded span is the longer one
    std::uint32_t index;  // relative to first_
    bool operator<(const Key& other) const {
      if (start_ns != other.start_ns) return start_ns < other.start_ns;
      if (duration_ns != other.duration_ns) return duration_ns > other.duration_ns;
      return index > other.index;
    }
  };
  static constexpr std::size_t block_records = 1024;
  struct Block {
    std::uint64_t number = UINT64_MAX;
    std::vector<Record> records;
  };
  static void sort(std::vector<Key>& keys);
  const Record& record(std::uint64_t index);

  const RecorderFile& file_;
  const std::size_t slot_;
  const std::uint64_t first_;
  std::vector<Key> keys_;
  std::size_t given_ = 0;
  std::array<Block, 64> blocks_;
};

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

class FileSource : public RecordSource {
 public:
  explicit FileSource(std::unique_ptr<RecorderFile> file) : file_(std::move(file)), info_(header_of(*file_)) {
    Meetings meetings(info_.names, most_meetings(std::max(info_.world_size, 1)));
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot) {
      const RingFacts facts = survey(*file_, slot, meetings);
      info_.damaged += facts.damaged;
      info_.first_ns = std::min(info_.first_ns, facts.first_ns);
      info_.last_ns = std::max(info_.last_ns, facts.last_ns);
      for (std::size_t track = 0; track < facts.by_track.size(); ++track)
        if (facts.by_track[track] > 0) parts_.push_back({slot, track, facts.by_track[track]});
    }
    // If a thread wrote to a track, the track becomes one of the file's threads.
    for (const Part& part : parts_)
      if (part.track >= info_.threads.size()) info_.threads.resize(part.track + 1);
    info_.meetings = std::move(meetings).take();
  }

  const RankInfo& info() const override { return info_; }

  std::span<const Record> next() override {
    block_.resize(largest_block_bytes / sizeof(Record));
    while (true) {
      if (records_ != nullptr)
        if (const std::size_t count = records_->next(block_); count > 0) return {block_.data(), count};
      records_.reset();
      if (next_part_ == parts_.size()) return {};
      const Part& part = parts_[next_part_++];
      records_ = std::make_unique<SortedRecords>(*file_, part.slot, part.track, part.records);
    }
  }

 private:
  // The records that one thread wrote for one line of the trace.
  struct Part {
    std::size_t slot;
    std::size_t track;
    std::uint64_t records;
  };

  std::unique_ptr<RecorderFile> file_;
  RankInfo info_;
  std::vector<Part> parts_;
  std::size_t next_part_ = 0;
  std::unique_ptr<SortedRecords> records_;
  std::vector<Record> block_;
};

class ReceivedSource : public RecordSource {
 public:
  ReceivedSource(RankInfo info, std::function<std::vector<std::byte>()> receive)
      : info_(std::move(info)), receive_(std::move(receive)) {}

  const RankInfo& info() const override { return info_; }

  std::span<const Record> next() override {
    const std::vector<std::byte> bytes = receive_();
    if (bytes.size() % sizeof(Record) != 0 || bytes.size() > largest_block_bytes)
      throw CorruptInput("rank " + std::to_string(info_.rank) + " sent a block of " +
                         std::to_string(bytes.size()) + " bytes, which is not a block of records");
    records_.resize(bytes.size() / sizeof(Record));
    if (!bytes.empty()) std::memcpy(records_.data(), bytes.data(), bytes.size());
    for (const Record& record : records_) check(record);
    return records_;
  }

 private:
  void check(const Record& record) const {
    if (record.kind == RecordKind::none || record.kind > RecordKind::counter ||
        static_cast<std::size_t>(record.category) >= category_names.size() ||
        record.track >= info_.threads.size() || record.name >= info_.names.size() ||
        record.operation_name() >= info_.names.size())
      throw CorruptInput("rank " + std::to_string(info_.rank) +
                         " sent a record whose name or thread does not exist");
  }

  RankInfo info_;
  std::function<std::vector<std::byte>()> receive_;
  std::vector<Record> records_;
};

class StepsOfSource : public RecordSource {
 public:
  StepsOfSource(std::unique_ptr<RecordSource> source, const StepWindow& steps)
      : source_(std::move(source)), steps_(steps) {}

  const RankInfo& info() const override { return source_->info(); }

  std::span<const Record> next() override {
    records_.clear();
    while (records_.empty()) {
      const auto block = source_->next();
      if (block.empty()) break;
      std::copy_if(block.begin(), block.end(), std::back_inserter(records_), [this](const Record& record) {
        return record.step >= steps_.first && record.step <= steps_.last;
      });
    }
    return records_;
  }

 private:
  std::unique_ptr<RecordSource> source_;
  const StepWindow steps_;
  std::vector<Record> records_;
};

template <typename T>
void append_bytes(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const auto more = std::as_bytes(std::span(values));
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <typename T>
std::vector<T> take_bytes(std::span<const std::byte>& bytes, std::size_t count) {
  if (count > bytes.size() / sizeof(T)) throw CorruptInput("a rank's description of its records is cut off");
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return values;
}

}  // namespace

RankInfo header_of(const RecorderFile& file) {
  RankInfo info;
  info.rank = file.rank();
  info.world_size = file.world_size();
  info.host = file.host();
  info.clock = file.clock();
  info.dropped = file.dropped();
  info.names = file.names();
  info.threads = file.threads();
  info.start_monotonic_ns = file.start_monotonic_ns();
  info.start_realtime_ns = file.start_realtime_ns();
  info.clock_samples = file.clock_samples();
  return info;
}

std::unique_ptr<RecordSource> open_source(const std::filesystem::path& recorder_file) {
  return open_source(std::make_unique<RecorderFile>(recorder_file));
}

std::unique_ptr<RecordSource> open_source(std::unique_ptr<RecorderFile> file) {
  return std::make_unique<FileSource>(std::move(file));
}

std::unique_ptr<RecordSource> steps_of(std::unique_ptr<RecordSource> source, const StepWindow& steps) {
  return std::make_unique<StepsOfSource>(std::move(source), steps);
}

std::unique_ptr<RecordSource> received_source(RankInfo info,
                                              std::function<std::vector<std::byte>()> receive) {
  return std::make_unique<ReceivedSource>(std::move(info), std::move(receive));
}

// The format is the length of a description in CBOR, the description, and the samples as they are in memory.
// This works because all ranks run the same build.
std::vector<std::byte> pack(const RankInfo& info) {
  Json json = {{"rank", info.rank},
               {"world_size", info.world_size},
               {"host", info.host},
               {"clock", info.clock},
               {"first_ns", info.first_ns},
               {"last_ns", info.last_ns},
               {"dropped", info.dropped},
               {"damaged", info.damaged},
               {"start_monotonic_ns", info.start_monotonic_ns},
               {"start_realtime_ns", info.start_realtime_ns},
               {"names", info.names},
               {"threads", Json::array()},
               {"clock_samples", info.clock_samples.size()},
               {"meetings", info.meetings.size()}};
  for (const auto& thread : info.threads)
    json["threads"].push_back({thread.name, thread.recorded, thread.overwritten});
  const auto description = cbor_of(json);
  std::vector<std::byte> result;
  append_bytes(result, std::vector<std::uint64_t>{description.size()});
  append_bytes(result, description);
  append_bytes(result, info.clock_samples);
  append_bytes(result, info.meetings);
  return result;
}

RankInfo unpack(std::span<const std::byte> bytes) try {
  const std::uint64_t description_bytes = take_bytes<std::uint64_t>(bytes, 1)[0];
  const auto json = parse_cbor(take_bytes<std::uint8_t>(bytes, description_bytes));
  RankInfo info{.rank = json.at("rank"),
                .world_size = json.at("world_size"),
                .host = json.at("host"),
                .clock = json.at("clock"),
                .first_ns = json.at("first_ns"),
                .last_ns = json.at("last_ns"),
                .dropped = json.at("dropped"),
                .damaged = json.at("damaged"),
                .start_monotonic_ns = json.at("start_monotonic_ns"),
                .start_realtime_ns = json.at("start_realtime_ns"),
                .clock_samples = take_bytes<RoundTrip>(bytes, json.at("clock_samples").get<std::size_t>()),
                .meetings = take_bytes<Meeting>(bytes, json.at("meetings").get<std::size_t>()),
                .names = json.at("names").get<std::vector<std::string>>(),
                .threads = {}};
  for (const auto& thread : json.at("threads"))
    info.threads.push_back({thread.at(0), thread.at(1), thread.at(2)});
  return info;
} catch (const Json::exception& error) {
  throw CorruptInput(std::string("a rank's description of its records is damaged: ") + error.what());
}

}  // namespace farandole
