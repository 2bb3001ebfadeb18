// What a rank's flight recorder says about the rank's end. Plain values; reading is usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

// A span or collective that a thread was in, or was in last.
struct Activity {
  RecordKind kind = RecordKind::span;
  Category category = Category::other;
  std::string name, operation;  // an operation only where it is a collective
  std::uint16_t communicator = 0;
  std::uint32_t sequence = 0;
  std::int64_t start_ns = 0;  // CLOCK_REALTIME of the rank's host, as all times here
  std::int64_t end_ns = 0;    // 0: it had not ended
};

struct RecorderEvidence {
  std::string trouble;  // which file, or part of it, cannot be read, and why; "" where all can
  bool readable = false;
  bool closed = false;  // the rank ended in order
  std::string host;
  std::uint32_t pid = 0;
  int world_size = 1;
  std::int64_t start_ns = 0;
  std::int64_t last_ns = 0;                  // of the newest record
  std::int64_t step = -1;                    // the last that began; -1: none did
  std::optional<Activity> doing;             // of the training thread, where the rank did not end in order
  std::optional<Activity> did_last;          // its newest phase that has ended
  std::map<std::uint16_t, Activity> calls;   // the newest collective of each communicator
  std::map<std::string, std::string> facts;  // versions, as the rank stated them
};

// Never throws for what is in the file.
RecorderEvidence read_recorder_evidence(const std::filesystem::path& file);

}  // namespace farandole
