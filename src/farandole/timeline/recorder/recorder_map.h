// Creates and maps the flight recorder's file for writing. Used by timeline.cc; created by one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class RecorderMap {
 public:
  // Creates options.file, its folder where needed, or the one in options.node_folder that stands for it, with
  // all its blocks, so that writing to the map cannot fail later. Where disk or quota is full, it says so in
  // the log and takes options.file for a node_folder that nobody wished for; else nullptr. Throws UserError
  // for a bound below recorder::smallest_file, Error where the file cannot be created. What fails leaves no
  // file.
  static std::unique_ptr<RecorderMap> create(const TimelineOptions& options);
  ~RecorderMap();  // brings the file to options.file; warns in the log where that has no room for it
  RecorderMap(const RecorderMap&) = delete;
  RecorderMap& operator=(const RecorderMap&) = delete;

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
              std::byte* base)
      : geometry(shape), path(std::move(file)), destination_(std::move(destination)), base_(base) {}
  const std::filesystem::path destination_;
  std::byte* const base_;
};

}  // namespace farandole
