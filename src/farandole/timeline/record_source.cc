#include "farandole/timeline/record_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/timeline/sorted_records.h"

namespace farandole {
namespace {

class FileSource : public RecordSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : file_(path) {
    info_.rank = file_.rank();
    info_.world_size = file_.world_size();
    info_.host = file_.host();
    info_.dropped = file_.dropped();
    info_.names = file_.names();
    info_.threads = file_.threads();
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot) {
      const RingFacts facts = survey(file_, slot);
      info_.damaged += facts.damaged;
      info_.first_ns = std::min(info_.first_ns, facts.first_ns);
      for (std::size_t track = 0; track < facts.by_track.size(); ++track)
        if (facts.by_track[track] > 0) parts_.push_back({slot, track, facts.by_track[track]});
    }
    // A track that a thread has written comes to lie among the file's threads.
    for (const Part& part : parts_)
      if (part.track >= info_.threads.size()) info_.threads.resize(part.track + 1);
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
      records_ = std::make_unique<SortedRecords>(file_, part.slot, part.track, part.records);
    }
  }

 private:
  // What one thread has recorded for one line of the trace.
  struct Part {
    std::size_t slot;
    std::size_t track;
    std::uint64_t records;
  };

  RecorderFile file_;
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
                         std::to_string(bytes.size()) + " bytes, which is no block of records");
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
        record.operation >= info_.names.size())
      throw CorruptInput("rank " + std::to_string(info_.rank) +
                         " sent a record that fits none of its names and threads");
  }

  RankInfo info_;
  std::function<std::vector<std::byte>()> receive_;
  std::vector<Record> records_;
};

}  // namespace

std::unique_ptr<RecordSource> open_source(const std::filesystem::path& recorder_file) {
  return std::make_unique<FileSource>(recorder_file);
}

std::unique_ptr<RecordSource> received_source(RankInfo info,
                                              std::function<std::vector<std::byte>()> receive) {
  return std::make_unique<ReceivedSource>(std::move(info), std::move(receive));
}

std::vector<std::byte> pack(const RankInfo& info) {
  nlohmann::json threads = nlohmann::json::array();
  for (const RecorderThread& thread : info.threads)
    threads.push_back({thread.name, thread.recorded, thread.overwritten});
  const std::vector<std::uint8_t> bytes =
      nlohmann::json::to_cbor({info.rank, info.world_size, info.host, info.first_ns, info.dropped,
                               info.damaged, info.names, threads});
  std::vector<std::byte> result(bytes.size());
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

RankInfo unpack(std::span<const std::byte> bytes) try {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto json = nlohmann::json::from_cbor(data, data + bytes.size());
  RankInfo info;
  info.rank = json.at(0);
  info.world_size = json.at(1);
  info.host = json.at(2);
  info.first_ns = json.at(3);
  info.dropped = json.at(4);
  info.damaged = json.at(5);
  info.names = json.at(6);
  for (const auto& thread : json.at(7)) info.threads.push_back({thread.at(0), thread.at(1), thread.at(2)});
  return info;
} catch (const nlohmann::json::exception& error) {
  throw CorruptInput(std::string("a rank's description of its records is damaged: ") + error.what());
}

}  // namespace farandole
