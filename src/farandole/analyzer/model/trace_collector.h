// Gathers a trace's events by process and thread in packed form, as the reader passes them. One thread per
// object.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/model/run_names.h"

namespace farandole {

struct CollectedThread {
  std::string name;
  ThreadSpans spans;
  std::vector<StepSpan> steps;
  PackedCollectives collectives;
  PackedCollectives parts;      // that no collective says of itself
  PackedCollectives gradients;  // instants at which they were ready
  GpuSpans gpu;
  PackedCollectives unnumbered;  // collectives as other profilers give them: kernels, and Gloo's on the host
  std::vector<TraceSpan> open;   // begun by an event of its own; without texts
  std::vector<std::uint32_t> open_names;
  Interval extent{INT64_MAX, INT64_MIN};              // of all spans
  Interval collectives_extent{INT64_MAX, INT64_MIN};  // of collectives, parts and GPU work

  bool has_spans() const;
};

struct CollectedProcess {
  std::string name, host;
  std::optional<std::int64_t> rank;
  std::map<std::int64_t, CollectedThread> threads;

  bool has_spans() const;
};

// Metadata may come before or after the spans.
class TraceCollector : public TraceVisitor {
 public:
  bool wants(std::string_view category) const override;
  void process(const TraceProcess& event) override;
  void thread(const TraceThread& event) override;
  void span(const TraceSpan& event) override;
  void begin(const TraceSpan& event) override;
  void end(std::int64_t pid, std::int64_t tid, std::int64_t time_ns) override;
  void instant(const TraceInstant& event) override;

  std::map<std::int64_t, CollectedProcess>& processes() { return processes_; }
  CollectedNames take_names() { return {std::move(texts_), std::move(communicator_names_)}; }

 private:
  CollectedThread& thread_of(std::int64_t pid, std::int64_t tid);
  std::uint32_t name_id(std::string_view text);
  std::uint32_t communicator_id(const std::string& name);
  void take(const TraceSpan& event);
  void gpu_span(const TraceSpan& event, CollectedThread& thread);
  void unnumbered_collective(const TraceSpan& event, std::string_view operation, CollectedThread& thread);

  std::map<std::int64_t, CollectedProcess> processes_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> communicators_;
  std::vector<std::string> communicator_names_;
  std::string scratch_;
  CollectedThread* last_ = nullptr;
  std::int64_t last_pid_ = 0;
  std::int64_t last_tid_ = 0;
};

// What the collected process says of its rank; the process is used up.
RankModel rank_model_of(int rank, CollectedProcess& process);

}  // namespace farandole
