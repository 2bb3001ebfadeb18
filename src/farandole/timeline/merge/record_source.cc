#include "farandole/timeline/merge/record_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/timeline/merge/sorted_records.h"

namespace farandole {
namespace {

class FileSource : public RecordSource {
 public:
  explicit FileSource(std::unique_ptr<RecorderFile> file) : file_(std::move(file)) {
    info_.rank = file_->rank();
    info_.world_size = file_->world_size();
    info_.host = file_->host();
    info_.clock = file_->clock();
    info_.dropped = file_->dropped();
    info_.names = file_->names();
    info_.threads = file_->threads();
    info_.start_monotonic_ns = file_->start_monotonic_ns();
    info_.start_realtime_ns = file_->start_realtime_ns();
    info_.clock_samples = file_->clock_samples();
    Meetings meetings(info_.names);
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot) {
      const RingFacts facts = survey(*file_, slot, meetings);
      info_.damaged += facts.damaged;
      info_.first_ns = std::min(info_.first_ns, facts.first_ns);
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
  nlohmann::json threads = nlohmann::json::array();
  for (const RecorderThread& thread : info.threads)
    threads.push_back({thread.name, thread.recorded, thread.overwritten});
  const std::vector<std::uint8_t> json = nlohmann::json::to_cbor(
      {info.rank, info.world_size, info.host, info.first_ns, info.dropped, info.damaged, info.names, threads,
       info.start_monotonic_ns, info.start_realtime_ns, info.clock_samples.size(), info.meetings.size(),
       info.clock});
  std::vector<std::byte> result;
  append_bytes(result, std::vector<std::uint64_t>{json.size()});
  append_bytes(result, json);
  append_bytes(result, info.clock_samples);
  append_bytes(result, info.meetings);
  return result;
}

RankInfo unpack(std::span<const std::byte> bytes) try {
  const std::uint64_t json_bytes = take_bytes<std::uint64_t>(bytes, 1)[0];
  const auto json = nlohmann::json::from_cbor(take_bytes<std::uint8_t>(bytes, json_bytes));
  RankInfo info;
  info.rank = json.at(0);
  info.world_size = json.at(1);
  info.host = json.at(2);
  info.first_ns = json.at(3);
  info.dropped = json.at(4);
  info.damaged = json.at(5);
  info.names = json.at(6);
  for (const auto& thread : json.at(7)) info.threads.push_back({thread.at(0), thread.at(1), thread.at(2)});
  info.start_monotonic_ns = json.at(8);
  info.start_realtime_ns = json.at(9);
  info.clock_samples = take_bytes<RoundTrip>(bytes, json.at(10).get<std::size_t>());
  info.meetings = take_bytes<Meeting>(bytes, json.at(11).get<std::size_t>());
  info.clock = json.at(12);
  return info;
} catch (const nlohmann::json::exception& error) {
  throw CorruptInput(std::string("a rank's description of its records is damaged: ") + error.what());
}

}  // namespace farandole
