// Writes RUN/metrics.jsonl: one JSON object per line, for training and for evaluation. Used on rank 0.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "farandole/base/files/file_bytes.h"
#include "farandole/job/run/resource_usage.h"

namespace farandole {

struct MetricsEvents {
  std::int64_t skipped_steps = 0, rollbacks = 0;
};
// Throws: CorruptInput if it is not a regular file; Error if it cannot be read.
MetricsEvents count_events(const std::filesystem::path& file);

class MetricsLog {
 public:
  // Appends to the file. Lines of steps after `last_step` are dropped: an earlier start wrote them, and the
  // run resumes before them.
  // Throws: CorruptInput if it is not a regular file; Error if the file cannot be written.
  MetricsLog(const std::filesystem::path& file, std::int64_t last_step);

  // Gets each number of the lines from now on.
  std::function<void(std::int64_t step, std::string_view name, double value)> observer;

  using Named = std::vector<std::pair<std::string, double>>;
  struct Training {
    std::int64_t step, epoch;
    Named values;          // The loss, and more of a program of one's own.
    double lr;             // NaN: unknown
    double samples_per_s;  // 0: unknown
    double step_ms;
  };
  struct Evaluation {
    std::int64_t step, epoch;
    double loss;
    std::optional<double> accuracy;
  };
  // A step that has changed nothing, because a gradient was not finite.
  struct SkippedStep {
    std::int64_t step, epoch;
    std::string reason;
  };
  // A step after which the parameters are those of an earlier one.
  struct Rollback {
    std::int64_t step, epoch, to_step;
    std::string reason;
  };
  struct Resources {
    std::int64_t step, epoch;
    std::vector<ResourceUsage> ranks;
  };
  // Any other values, by their keys.
  struct Values {
    std::int64_t step, epoch;
    Named values;
  };
  // A line that cannot be written is lost, as on a full disk; a warning says so once, until the file can
  // be written again.
  void write(const Training& line);
  void write(const Values& line);
  void write(const Resources& line);
  void write(const Evaluation& line);
  void write(const SkippedStep& line);
  void write(const Rollback& line);

 private:
  void append(const nlohmann::ordered_json& line);

  std::filesystem::path path_;
  OwnedDescriptor file_;
  std::int64_t lost_lines_ = 0;  // since the last one that was written
  bool torn_ = false;            // The file ends with a part of a line.
};

}  // namespace farandole
