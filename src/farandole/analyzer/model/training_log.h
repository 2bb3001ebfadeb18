// What RUN/metrics.jsonl says about a training: loss, learning rate and any other numbers over the steps, its
// skipped steps and rollbacks, and what the ranks have used.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// The values of neighbouring steps: all of them for a short run.
struct CurvePoint {
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t low_step = 0, high_step = 0;  // The steps of the lowest and the highest value.
  double low = 0, high = 0, sum = 0, last = 0;
  std::uint64_t count = 0;

  double mean() const { return sum / static_cast<double>(count); }
};

// A value over the steps. Its memory is bounded: if there are many values, neighbours are joined.
class Curve {
 public:
  static constexpr std::size_t most_points = 400;

  // A step before the last one follows a return to a checkpoint: the values after it no longer count.
  void add(std::int64_t step, double value);
  void add_not_finite() { ++not_finite_; }

  bool empty() const { return points_.empty(); }
  const std::vector<CurvePoint>& points() const { return points_; }  // In the order of the steps.
  std::uint64_t not_finite() const { return not_finite_; }           // Values that were NaN or infinite.
  double first() const { return first_; }
  const CurvePoint& lowest() const;
  const CurvePoint& highest() const;

 private:
  std::vector<CurvePoint> points_;
  std::uint64_t per_point_ = 1, not_finite_ = 0;
  double first_ = 0;
};

struct NamedCurve {
  std::string name;  // The key: "loss", "eval_accuracy", …
  Curve curve;

  bool is_evaluation() const { return name.starts_with("eval_"); }
};

struct LogEvent {
  std::int64_t step = 0;
  std::optional<std::int64_t> to_step;  // Of a rollback; a skipped step has none.
};

// What one rank has used since the start, as metrics.jsonl has it.
struct LoggedUse {
  std::optional<double> cpu_percent, memory_mib, read_mb, written_mb, gpu_percent, gpu_memory_mib;
};

struct TrainingLog {
  std::vector<NamedCurve> curves;  // The loss first, then evaluations, the learning rate and others.
  std::vector<LogEvent> events;    // At most 1,000.
  std::uint64_t skipped_steps = 0, rollbacks = 0;
  std::vector<LoggedUse> use;  // By rank, from the last line that has it.
  std::vector<std::string> warnings;

  const Curve* find(std::string_view name) const;
};

// Reads all lines of a file of up to 128 MiB, and of a larger one every second, third, … line. The log is
// empty if the file does not exist. Damage is named in one warning.
TrainingLog read_training_log(const std::filesystem::path& metrics_jsonl);

}  // namespace farandole
