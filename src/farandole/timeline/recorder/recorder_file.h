// Reads a flight recorder's file (.ftl), also one of a killed process, a truncated one, or one that is still
// written to. An object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/owned_descriptor.h"
#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

struct RecorderThread {
  std::string name;  // "" where the program gave none
  std::uint64_t recorded = 0;
  std::uint64_t overwritten = 0;
};

// Records that should be there and are not.
struct RecordDamage {
  std::uint64_t records = 0;
  std::int64_t first_offset = -1;  // in the file; -1: there is none
};

// No number in the file is trusted. What is damaged is left out, and named in problems().
class RecorderFile {
 public:
  // Throws UserError where the file cannot be opened, CorruptInput with file and offset where it is no
  // recorder's file, ends before its records, or has a header that nothing can be read with.
  explicit RecorderFile(const std::filesystem::path& path);
  RecorderFile(const RecorderFile&) = delete;
  RecorderFile& operator=(const RecorderFile&) = delete;

  int rank() const { return header_.fixed.rank; }
  int world_size() const { return header_.fixed.world_size; }
  const std::string& host() const { return host_; }
  std::uint32_t process() const { return header_.fixed.process; }
  std::uint32_t clock() const { return header_.fixed.clock; }  // clock_id() on its host; 0: unknown
  // The same moment on both clocks, in ns.
  std::int64_t start_monotonic_ns() const { return header_.fixed.start_monotonic_ns; }
  std::int64_t start_realtime_ns() const { return header_.fixed.start_realtime_ns; }
  // False: the process was killed, or is still running.
  bool closed() const { return header_.end_monotonic_ns != 0; }
  std::int64_t last_step() const { return header_.step; }
  std::uint64_t dropped() const { return header_.dropped; }  // events for which there was no room
  const std::vector<std::string>& names() const { return names_; }
  std::map<std::string, std::string> facts() const;  // as Timeline::set_metadata() gave them
  // By slot; Record::track is an index into it. Those without a record may be tracks.
  const std::vector<RecorderThread>& threads() const { return threads_; }
  // Round trips with rank 0's clock; none on rank 0.
  const std::vector<RoundTrip>& clock_samples() const { return clock_samples_; }
  // What is damaged beside the records, each with file and offset.
  const std::vector<std::string>& problems() const { return problems_; }
  const std::string& path() const { return path_; }
  // The newest `most` of them, without reading the others.
  std::vector<Record> newest_records(std::size_t slot, std::uint64_t most,
                                     RecordDamage* damage = nullptr) const;
  // The innermost span or collective that thread `slot` was in the middle of, if any.
  std::optional<recorder::OpenEvent> open(std::size_t slot) const;

  // Reads records of thread `slot` from its `index`th on, at most as many as `into` holds and lie together in
  // the file; returns how many. Those that are cut off or damaged get the kind none, and *damage, where
  // given, grows by them; so do, but for that, those that a rank which goes on has overwritten since this
  // file was opened, or while it was copied.
  std::size_t read_records(std::size_t slot, std::uint64_t index, std::span<Record> into,
                           RecordDamage* damage = nullptr) const;

  // What thread `slot` has recorded and is still there, oldest first. Records that are cut off or damaged are
  // left out, and *damage, where given, grows by them.
  std::vector<Record> records(std::size_t slot, RecordDamage* damage = nullptr) const;

  // Throws CorruptInput that names the first problem, or damaged or missing record.
  void verify() const;

 private:
  [[noreturn]] void damaged_at(std::uint64_t offset, const std::string& what) const;
  void note(std::uint64_t offset, const std::string& what);
  std::size_t read(std::uint64_t offset, void* into, std::size_t bytes) const;
  void read_fixed_header();
  void read_clocks();
  void read_names();
  void read_threads();
  std::string wrong_with(const recorder::ThreadEntry& entry, std::vector<bool>& used) const;
  bool sound(const Record& record, std::uint64_t index) const;
  bool is_later(const Record& record, std::size_t slot, std::uint64_t index) const;
  std::vector<Record> records_from(std::size_t slot, std::uint64_t first, RecordDamage* damage) const;

  std::string path_;
  OwnedDescriptor fd_;
  std::uint64_t file_bytes_ = 0;
  recorder::Header header_{};
  std::string host_;
  std::vector<std::string> names_;
  bool names_lost_ = false;
  std::vector<RoundTrip> clock_samples_;
  std::vector<std::string> problems_;
  std::vector<RecorderThread> threads_;
  std::vector<recorder::ThreadEntry> entries_;
};

}  // namespace farandole
