// Creates and maps the flight recorder's file for writing. Used by timeline.cc.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "farandole/base/files/file_bytes.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class RecorderMap {
 public:
  // Creates options.file and its folder if needed, or the staging file in options.node_folder. All blocks are
  // allocated, so that writing to the map does not fail later. Only a copy-on-write file system (btrfs, ZFS)
  // may need more space for it; if it is full then, SIGBUS ends the process. If disk or quota is full, logs a
  // warning. It then uses options.file if the node_folder was chosen automatically, and otherwise returns
  // nullptr. Leaves no file after a failure.
  // Throws: UserError if the size limit is below recorder::smallest_file.
  // Throws: Error if the file cannot be created.
  static std::unique_ptr<RecorderMap> create(const TimelineOptions& options);
  // Cuts the file to what is used and moves it to options.file. Logs a warning if it does not fit there.
  ~RecorderMap();
  RecorderMap(const RecorderMap&) = delete;
  RecorderMap& operator=(const RecorderMap&) = delete;

  // For a forked process: what it writes from now on is in no file, and it leaves the file where it is.
  void leave_to_parent();

  const recorder::Geometry geometry;
  const std::filesystem::path path;
  recorder::Header& header() { return *reinterpret_cast<recorder::Header*>(base_); }
  recorder::ClockTable& clocks() {
    return *reinterpret_cast<recorder::ClockTable*>(base_ + recorder::clocks_offset);
  }
  recorder::ThreadEntry& thread(std::size_t slot) {
    return reinterpret_cast<recorder::ThreadEntry*>(base_ + geometry.threads_offset)[slot];
  }
  char* names() { return reinterpret_cast<char*>(base_ + geometry.names_offset); }
  Record* chunk(std::size_t index) {
    return reinterpret_cast<Record*>(base_ + geometry.chunks_offset) + index * geometry.chunk_records;
  }

 private:
  static std::unique_ptr<RecorderMap> map_new(const TimelineOptions& options);
  RecorderMap(const recorder::Geometry& shape, std::filesystem::path file, std::filesystem::path destination,
              OwnedDescriptor open_file, std::byte* base)
      : geometry(shape),
        path(std::move(file)),
        destination_(std::move(destination)),
        fd_(std::move(open_file)),
        base_(base) {}
  const std::filesystem::path destination_;
  OwnedDescriptor fd_;  // protects the file while this process records
  std::byte* const base_;
  bool left_to_parent_ = false;
};

}  // namespace farandole
