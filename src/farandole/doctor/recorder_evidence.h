// What the flight recorder of a rank tells about the rank's end. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

// The span or collective in which a thread is or was last.
struct Activity {
  RecordKind kind = RecordKind::span;
  Category category = Category::other;
  std::string name, operation;  // The operation is set only for a collective.
  std::uint16_t communicator = 0;
  std::uint32_t sequence = 0;
  std::int64_t start_ns = 0;  // CLOCK_REALTIME of the rank's host, as are all times here.
  std::int64_t end_ns = 0;    // 0: it has not ended.
};

struct RecorderEvidence {
  std::string trouble;  // The file or part that cannot be read, and the reason; "" if there is none.
  bool readable = false;
  bool closed = false;  // The rank closed its recorder before it ended.
  std::string host;
  std::uint32_t pid = 0;
  int world_size = 1;
  std::int64_t start_ns = 0;
  std::int64_t last_ns = 0;       // Time of the newest record.
  std::int64_t step = -1;         // The last step that began; -1: none.
  std::optional<Activity> doing;  // Activity of the training thread, if the rank did not close its recorder.
  std::optional<Activity> did_last;         // Its newest phase that has ended.
  std::map<std::uint16_t, Activity> calls;  // The newest collective of each communicator.
  std::int64_t stall_limit_ns = 0;  // The run reports a longer wait in a collective; 0: never, or unknown.
  std::map<std::string, std::string> facts;  // Versions, as the rank has recorded them.
};

// Never throws, whatever the file contains.
RecorderEvidence read_recorder_evidence(const std::filesystem::path& file);

}  // namespace farandole
