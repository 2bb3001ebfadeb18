// RUN/metrics.jsonl: one JSON object a line, for training and for evaluation. On rank 0, used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

namespace farandole {

class MetricsLog {
 public:
  // Appends; lines of steps after `last_step`, left by a run that is now resumed before them, are dropped.
  // Throws Error.
  MetricsLog(const std::filesystem::path& file, std::int64_t last_step);

  struct Training {
    std::int64_t step, epoch;
    double loss, lr, samples_per_s, step_ms;
  };
  struct Evaluation {
    std::int64_t step, epoch;
    double loss;
    std::optional<double> accuracy;
  };
  void write(const Training& line);
  void write(const Evaluation& line);

 private:
  std::ofstream stream_;
};

}  // namespace farandole
