#include "farandole/timeline/recorder/recorder_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <unistd.h>
#include <utility>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/node_file.h"

namespace farandole {
namespace {

// 36 years since the host's start, so that sums and differences of such times do not overflow.
constexpr std::int64_t farthest_ns = std::int64_t{1} << 60;

// The smallest number has no absolute value.
bool is_near(std::int64_t ns) {
  return -farthest_ns < ns && ns < farthest_ns;
}

template <std::size_t n>
std::string text_of(const std::array<char, n>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

}  // namespace

std::uint32_t recorder::crc_of(const FixedHeader& header) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(&header), offsetof(FixedHeader, crc)));
}

RecorderFile::RecorderFile(const std::filesystem::path& path) : path_(path), fd_(open_regular_file(path)) {
  if (fd_.get() < 0 && errno == ENOTDIR) {
    auto part = open_part(path);
    fd_ = std::move(part.fd);
    begin_ = part.begin;
    end_ = part.bytes;
  }
  if (fd_.get() < 0) {
    const int failure = errno;
    std::error_code none;
    if (const auto elsewhere = std::filesystem::read_symlink(node_link(path), none); !none)
      throw UserError(path_ + " is still on the node of its rank, at " + elsewhere.string());
    throw UserError("open " + path_ + ": " + std::strerror(failure));
  }
  read_fixed_header();
  read_clocks();
  read_threads();
  // Names are read after the threads, so that every record of a file that is still being
  // written finds its name.
  read_names();
}

void RecorderFile::damaged_at(std::uint64_t offset, const std::string& what) const {
  throw CorruptInput(path_ + ", offset " + std::to_string(offset) + ": " + what);
}

void RecorderFile::note(std::uint64_t offset, const std::string& what) {
  problems_.push_back(path_ + ", offset " + std::to_string(offset) + ": " + what);
}

std::size_t RecorderFile::read(std::uint64_t offset, void* into, std::size_t bytes) const {
  const auto there = std::min<std::uint64_t>(bytes, end_ - std::min(offset, end_));
  return read_bytes(fd_.get(), begin_ + offset, {static_cast<std::byte*>(into), there}, path_);
}

void RecorderFile::read_fixed_header() {
  const std::size_t bytes = read(0, &header_, sizeof header_);
  const recorder::FixedHeader& fixed = header_.fixed;
  if (bytes == 0) damaged_at(0, "the file is empty: the rank ended before it could record");
  if (bytes < sizeof fixed.magic || fixed.magic != recorder::magic)
    damaged_at(0, "this is not a flight recorder's file");
  if (bytes < sizeof header_) damaged_at(bytes, "the file ends inside its header");
  if (fixed.byte_order != recorder::byte_order)
    damaged_at(offsetof(recorder::FixedHeader, byte_order),
               "it was written on a machine with another byte order: read it on such a machine");
  if (fixed.version != recorder::version)
    damaged_at(offsetof(recorder::FixedHeader, version),
               "format version " + std::to_string(fixed.version) + ", but this program reads " +
                   std::to_string(recorder::version) + ": use the program that wrote it");
  const bool known_shape =
      fixed.record_bytes == sizeof(Record) && fixed.thread_slots == recorder::thread_slots &&
      fixed.chunk_count == recorder::chunk_count && fixed.chunk_records > 0 &&
      fixed.chunk_records < (1u << 22) && fixed.threads_offset < (1u << 20) &&
      fixed.names_bytes <= (1u << 20) && fixed.names_offset < (1u << 20) &&
      fixed.chunks_offset < (1u << 22) && fixed.rank >= 0 && fixed.rank < recorder::most_ranks &&
      fixed.file_bytes ==
          fixed.chunks_offset + std::uint64_t{fixed.chunk_records} * fixed.chunk_count * sizeof(Record);
  if (!known_shape) damaged_at(0, "the numbers in the header contradict each other");
  if (crc_of(fixed) != fixed.crc) {
    note(0, "the header is damaged (checksum): rank, host and start may be wrong");
    header_.fixed.rank = rank_of_recorder(path_).value_or(fixed.rank);
  }
  if (fixed.world_size <= fixed.rank || fixed.world_size > recorder::most_ranks)
    header_.fixed.world_size = fixed.rank + 1;
  host_ = text_of(fixed.host);
}

void RecorderFile::read_clocks() {
  recorder::ClockTable table{};
  read(recorder::clocks_offset, &table, sizeof table);
  for (const recorder::ClockSample& sample : table.samples) {
    const bool empty = sample.send_ns == 0 && sample.receive_ns == 0 && sample.check == 0;
    if (!empty && sample.check == clock_check(sample))
      clock_samples_.push_back({sample.send_ns, sample.reference_ns, sample.receive_ns});
    else if (!empty)
      note(recorder::clocks_offset +
               static_cast<std::uint64_t>(&sample - table.samples.data()) * sizeof sample,
           "a clock sample is damaged");
  }
}

// Describes what is wrong with the entry, or "". A wrong entry must not be used.
std::string RecorderFile::wrong_with(const recorder::ThreadEntry& entry, std::vector<bool>& used) const {
  const recorder::FixedHeader& fixed = header_.fixed;
  if (entry.chunks_used > fixed.chunk_count) return "a thread has more chunks than the file";
  for (std::uint32_t i = 0; i < entry.chunks_used; ++i) {
    if (entry.chunks[i] >= fixed.chunk_count || used[entry.chunks[i]])
      return "a thread uses chunks of another thread";
    used[entry.chunks[i]] = true;
  }
  if (entry.head >= std::uint64_t{1} << 60) return "a thread has an impossible number of records";
  if (entry.head > 0 && entry.chunks_used == 0) return "a thread has records but no chunk";
  return "";
}

void RecorderFile::read_threads() {
  const recorder::FixedHeader& fixed = header_.fixed;
  entries_.resize(fixed.thread_slots);
  const std::size_t bytes = entries_.size() * sizeof(recorder::ThreadEntry);
  const std::size_t there = read(fixed.threads_offset, entries_.data(), bytes);
  if (there < bytes) damaged_at(fixed.threads_offset + there, "the file ends inside its table of threads");
  std::vector<bool> used(fixed.chunk_count);
  for (std::size_t slot = 0; slot < entries_.size(); ++slot) {
    recorder::ThreadEntry& entry = entries_[slot];
    if (const std::string wrong = wrong_with(entry, used); !wrong.empty()) {
      note(fixed.threads_offset + slot * sizeof entry, wrong + ": its records are lost");
      entry = {};
    }
    const std::uint64_t room = std::uint64_t{entry.chunks_used} * fixed.chunk_records;
    if (entry.in_use == 0 && entry.head == 0) continue;
    // If the pool is empty, the writer may be overwriting the oldest record of a full ring.
    const bool next_overwrites = header_.next_chunk >= fixed.chunk_count;
    const std::uint64_t end = entry.head + (next_overwrites && entry.head > 0 ? 1 : 0);
    const std::uint64_t overwritten = end > room ? end - room : 0;
    threads_.resize(slot + 1);
    threads_[slot] = {text_of(entry.name), entry.head, overwritten};
  }
}

void RecorderFile::read_names() {
  const recorder::FixedHeader& fixed = header_.fixed;
  const auto lost_from = [&](std::uint64_t offset, const std::string& what) {
    note(offset, what + ": all later names are lost");
    names_lost_ = true;
  };
  read(offsetof(recorder::Header, names_used), &header_.names_used, sizeof header_.names_used);
  if (header_.names_used > fixed.names_bytes) {
    lost_from(offsetof(recorder::Header, names_used), "the names exceed their space");
    header_.names_used = fixed.names_bytes;
  }
  std::vector<char> bytes(header_.names_used);
  const std::size_t there = read(fixed.names_offset, bytes.data(), bytes.size());
  if (there < bytes.size()) {
    lost_from(fixed.names_offset + there, "the file ends inside its names");
    bytes.resize(there);
  }
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint16_t length = 0;
    if (bytes.size() - at >= sizeof length) std::memcpy(&length, &bytes[at], sizeof length);
    if (bytes.size() - at < sizeof length + length) {
      if (!names_lost_) lost_from(fixed.names_offset + at, "a name exceeds the space for names");
      break;
    }
    names_.emplace_back(bytes.data() + at + sizeof length, length);
    at += sizeof length + length;
  }
  if (names_.empty()) names_.emplace_back("(unnamed)");
}

std::optional<recorder::OpenEvent> RecorderFile::open(std::size_t slot) const {
  if (slot >= threads_.size()) return std::nullopt;
  const recorder::OpenEvent& open = entries_[slot].open;
  const bool sound = (open.kind == RecordKind::span || open.kind == RecordKind::collective) &&
                     static_cast<std::size_t>(open.category) < category_names.size() &&
                     open.name < names_.size() && open.operation < names_.size();
  return sound ? std::optional(open) : std::nullopt;
}

bool RecorderFile::sound(const Record& record, std::uint64_t index) const {
  return record.check == record_check(record, index) && record.kind > RecordKind::none &&
         record.kind <= RecordKind::counter &&
         static_cast<std::size_t>(record.category) < category_names.size() &&
         record.track < header_.fixed.thread_slots &&
         (names_lost_ || (record.name < names_.size() && record.operation_name() < names_.size())) &&
         is_near(record.start_ns) && is_near(record.end_ns);
}

// True if the record is in place `index` because the ring has wrapped around. The record's check value tells
// which place the record was written for.
bool RecorderFile::is_later(const Record& record, std::size_t slot, std::uint64_t index) const {
  const std::uint64_t room = std::uint64_t{entries_[slot].chunks_used} * header_.fixed.chunk_records;
  const std::uint64_t own = record_index(record);
  return !closed() && own > index && own - index <= room * 1'000'000 && (own - index) % room == 0 &&
         sound(record, own);
}

std::size_t RecorderFile::read_records(std::size_t slot, std::uint64_t index, std::span<Record> into,
                                       RecordDamage* damage) const {
  const recorder::ThreadEntry& entry = entries_.at(slot);
  if (index >= entry.head || into.empty()) return 0;
  const std::uint64_t chunk_records = header_.fixed.chunk_records;
  const std::uint64_t within = index % chunk_records;
  const std::uint64_t count =
      std::min<std::uint64_t>({chunk_records - within, entry.head - index, into.size()});
  const std::uint64_t place =
      entry.chunks[index / chunk_records % entry.chunks_used] * chunk_records + within;
  const std::uint64_t offset = header_.fixed.chunks_offset + place * sizeof(Record);
  const std::uint64_t there = read(offset, into.data(), count * sizeof(Record)) / sizeof(Record);
  bool later = false;  // whether the previous record was overwritten
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i < there && sound(into[i], index + i)) {
      if (into[i].name >= names_.size()) into[i].name = 0;
      if (into[i].operation_name() >= names_.size()) into[i].operation = 0;
      later = false;
      continue;
    }
    // After the overwritten records comes one that may be in the middle of being written.
    const bool overwritten = i < there && (is_later(into[i], slot, index + i) || std::exchange(later, false));
    if (overwritten) later = is_later(into[i], slot, index + i);
    into[i].kind = RecordKind::none;
    if (overwritten || damage == nullptr) continue;
    if (damage->records++ == 0) damage->first_offset = static_cast<std::int64_t>(offset + i * sizeof(Record));
  }
  return count;
}

std::vector<Record> RecorderFile::records(std::size_t slot, RecordDamage* damage) const {
  return records_from(slot, 0, damage);
}

std::vector<Record> RecorderFile::newest_records(std::size_t slot, std::uint64_t most,
                                                 RecordDamage* damage) const {
  const std::uint64_t head = entries_.at(slot).head;
  return records_from(slot, head > most ? head - most : 0, damage);
}

std::int64_t RecorderFile::last_realtime_ns() const {
  auto last = std::max(start_monotonic_ns(), end_monotonic_ns());
  for (std::size_t slot = 0; slot < threads_.size(); ++slot)
    for (const Record& record : newest_records(slot, 1)) last = std::max(last, record.end_ns);
  return start_realtime_ns() + (last - start_monotonic_ns());
}

std::map<std::string, std::string> RecorderFile::facts() const {
  std::map<std::string, std::string> facts;
  for (const auto& name : names_) {
    if (!name.starts_with(recorder::fact_mark)) continue;
    const auto equals = name.find('=');
    if (equals != std::string::npos)
      facts[name.substr(recorder::fact_mark.size(), equals - recorder::fact_mark.size())] =
          name.substr(equals + 1);
  }
  return facts;
}

bool RecorderFile::counts_own_steps() const {
  const auto facts = this->facts();
  const auto found = facts.find(std::string(recorder::steps_fact));
  return found != facts.end() && found->second == recorder::counted_steps;
}

std::vector<Record> RecorderFile::records_from(std::size_t slot, std::uint64_t first,
                                               RecordDamage* damage) const {
  const std::uint64_t oldest = slot < threads_.size() ? threads_[slot].overwritten : 0;
  const std::uint64_t chunk_records = header_.fixed.chunk_records;
  std::vector<Record> result;
  std::vector<Record> block(std::min<std::uint64_t>(chunk_records, 4096));
  for (std::uint64_t index = std::max(first, oldest); index < entries_.at(slot).head;) {
    const std::size_t count = read_records(slot, index, block, damage);
    std::copy_if(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count),
                 std::back_inserter(result),
                 [](const Record& record) { return record.kind != RecordKind::none; });
    index += count;
  }
  return result;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> RecorderFile::used() const {
  const recorder::FixedHeader& fixed = header_.fixed;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts = {{0, fixed.names_offset + header_.names_used}};
  for (const recorder::ThreadEntry& entry : entries_)
    for (std::uint64_t i = 0; i < entry.chunks_used; ++i) {
      const std::uint64_t chunk_records = fixed.chunk_records;
      const auto before = i * chunk_records;
      const auto records = entry.head > before ? std::min(entry.head - before, chunk_records) : 0;
      const auto begin = fixed.chunks_offset + entry.chunks[i] * chunk_records * sizeof(Record);
      if (records > 0) parts.emplace_back(begin, begin + records * sizeof(Record));
    }
  std::sort(parts.begin(), parts.end());
  return parts;
}

void RecorderFile::verify() const {
  if (!problems_.empty()) throw CorruptInput(problems_.front());
  RecordDamage damage;
  for (std::size_t slot = 0; slot < threads_.size(); ++slot) records(slot, &damage);
  if (damage.records > 0)
    damaged_at(static_cast<std::uint64_t>(damage.first_offset),
               std::to_string(damage.records) + " records are damaged or missing; this is the first one");
}

}  // namespace farandole
