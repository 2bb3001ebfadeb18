// Reads a flight recorder's file (.ftl), or a part of a node's file (node_file.h). It may be from a killed
// process, truncated, or still being written.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

struct RecorderThread {
  std::string name;  // "" if the program gave no name
  std::uint64_t recorded = 0;
  std::uint64_t overwritten = 0;
};

// Records that are missing or damaged.
struct RecordDamage {
  std::uint64_t records = 0;
  std::int64_t first_offset = -1;  // offset in the file; -1 if there is no damage
};

// No number in the file is trusted. Damaged parts are left out and described in problems().
class RecorderFile {
 public:
  // Throws: UserError if the file cannot be opened.
  // Throws: CorruptInput with file and offset if the file is not a recorder's file or not a regular file,
  // ends before its records, or has an unusable header.
  explicit RecorderFile(const std::filesystem::path& path);
  RecorderFile(const RecorderFile&) = delete;
  RecorderFile& operator=(const RecorderFile&) = delete;

  int rank() const { return header_.fixed.rank; }
  int world_size() const { return header_.fixed.world_size; }
  const std::string& host() const { return host_; }
  std::uint32_t process() const { return header_.fixed.process; }
  std::uint32_t clock() const { return header_.fixed.clock; }  // clock_id() of its host; 0 if unknown
  // The same moment on both clocks.
  // Units: nanoseconds.
  std::int64_t start_monotonic_ns() const { return header_.fixed.start_monotonic_ns; }
  std::int64_t start_realtime_ns() const { return header_.fixed.start_realtime_ns; }
  // False if the process was killed or is still running.
  bool closed() const { return header_.end_monotonic_ns != 0; }
  std::int64_t last_step() const { return header_.step; }
  const recorder::Totals& totals() const { return header_.totals; }
  std::int64_t end_monotonic_ns() const { return header_.end_monotonic_ns; }  // 0 if it was not closed
  // The end of the newest records, or the time at which it was closed.
  // Units: nanoseconds since 1970, by the date of its host.
  std::int64_t last_realtime_ns() const;
  std::uint64_t dropped() const { return header_.dropped; }  // events that did not fit
  const std::vector<std::string>& names() const { return names_; }
  std::map<std::string, std::string> facts() const;  // the facts given to Timeline::set_metadata()
  // Whether only the library numbers the steps of the program, from 0 in each start.
  bool counts_own_steps() const;
  // By slot; Record::track is an index into this vector. Entries without a record may be tracks.
  const std::vector<RecorderThread>& threads() const { return threads_; }
  // Round trips with rank 0's clock; empty on rank 0.
  const std::vector<RoundTrip>& clock_samples() const { return clock_samples_; }
  // Damage outside of the records, each with file and offset.
  const std::vector<std::string>& problems() const { return problems_; }
  const std::string& path() const { return path_; }
  // Reads the newest `most` records without reading the others.
  std::vector<Record> newest_records(std::size_t slot, std::uint64_t most,
                                     RecordDamage* damage = nullptr) const;
  // The innermost span or collective that thread `slot` had not finished, if there was one.
  std::optional<recorder::OpenEvent> open(std::size_t slot) const;

  // Reads records of thread `slot` from number `index` on, as many as fit into `into` and are contiguous in
  // the file. Returns their number. Truncated and damaged records get the kind none and are added to *damage.
  // Records that a running rank has overwritten since this file was opened, or while it was copied, also get
  // the kind none, but are not added.
  std::size_t read_records(std::size_t slot, std::uint64_t index, std::span<Record> into,
                           RecordDamage* damage = nullptr) const;

  // The records of thread `slot` that still exist, oldest first. Truncated and damaged records are left out
  // and added to *damage.
  std::vector<Record> records(std::size_t slot, RecordDamage* damage = nullptr) const;

  // Returns less than `bytes` only at the end of the file.
  std::size_t read(std::uint64_t offset, void* into, std::size_t bytes) const;

  // The parts of the file that hold something, ascending: header and names, and the records of each chunk.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used() const;

  // Throws: CorruptInput that names the first problem or the first damaged or missing record.
  void verify() const;

 private:
  [[noreturn]] void damaged_at(std::uint64_t offset, const std::string& what) const;
  void note(std::uint64_t offset, const std::string& what);
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
  std::uint64_t begin_ = 0, end_ = UINT64_MAX;  // in a node's file
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
