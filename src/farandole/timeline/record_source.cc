#include "farandole/timeline/record_source.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"

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
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot)
      for (const Record& record : file_.records(slot, &info_.damaged))
        info_.first_ns = std::min(info_.first_ns, record.start_ns);
  }

  const RankInfo& info() const override { return info_; }

  std::span<const Record> next() override {
    while (given_ == records_.size()) {
      if (slot_ == info_.threads.size()) return {};
      records_ = file_.records(slot_++);
      given_ = 0;
      std::sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
        return std::tie(a.track, a.start_ns, b.end_ns) < std::tie(b.track, b.start_ns, a.end_ns);
      });
    }
    const std::size_t count = std::min(records_.size() - given_, largest_block_bytes / sizeof(Record));
    return {records_.data() + std::exchange(given_, given_ + count), count};
  }

 private:
  RecorderFile file_;
  RankInfo info_;
  std::size_t slot_ = 0;
  std::vector<Record> records_;
  std::size_t given_ = 0;
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
