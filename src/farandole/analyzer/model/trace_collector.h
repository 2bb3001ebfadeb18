// Collects the events of a trace by process and thread in packed form while the trace is read.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// The meaning of the numbers in the collectives of a rank.
struct CollectedNames {
  std::vector<std::string> texts;          // Names and operations.
  std::vector<std::string> communicators;  // Communicators of collectives for which the trace has no number.
};

class RunNames {
 public:
  explicit RunNames(RunModel& run) : run_(run) {}

  // Replaces the numbers of the rank, whose clock must not be aligned yet, by those of the run. Equal names
  // get equal numbers. Communicators beyond 65,536 are not matched.
  void adopt(RankModel& rank, const CollectedNames& own);

 private:
  RunModel& run_;
  std::unordered_map<std::string, std::uint32_t> texts_, communicators_;
};

// What the events tell of their origin.
struct TraceOrigin {
  bool is_kineto = false;  // Some event has a category that only PyTorch's profiler uses.
  bool is_horovod = false;
  bool is_xla = false;        // Some process is named as XLA's profiler names devices and the host.
  bool uses_device = false;   // The host gave work to an accelerator.
  std::uint64_t untimed = 0;  // Work of devices without a time, which is left out.
};

struct CollectedThread {
  std::string name;
  ThreadSpans spans;
  ThreadSpans operators;  // Of PyTorch; they are phases only where no other phase encloses them.
  std::vector<StepSpan> steps;
  PackedCollectives collectives;
  PackedCollectives parts;  // Parts without a collective event of their own.
  PackedNamedSpans gpu;
  PackedNamedSpans ranges;  // Named ranges of the program: annotations, modules, NVTX.
  // Calls that gave work to devices, by the number that links them.
  std::vector<std::pair<std::int64_t, std::int64_t>> launches;
  std::int64_t device = 0;  // Set by the reader if the process has several GPUs.
  // Collectives as other profilers record them: kernels, and those of Gloo on the host.
  PackedCollectives unnumbered;
  std::vector<TraceSpan> open;  // Begun by a separate event; without texts.
  std::vector<std::uint32_t> open_names;
  Interval extent{INT64_MAX, INT64_MIN};              // Of all spans.
  Interval collectives_extent{INT64_MAX, INT64_MIN};  // Of collectives, parts and GPU work.

  bool has_spans() const;
};

struct CollectedProcess {
  std::string name, host;
  std::optional<std::int64_t> rank;
  std::map<std::int64_t, CollectedThread> threads;
  ResourceCounters resources;

  bool has_spans() const;
};

// Metadata may come before or after the spans, and spans in any order.
class TraceCollector : public TraceVisitor {
 public:
  // `keep_all`: spans that are left out only if the spans come in order are kept.
  explicit TraceCollector(bool keep_all = false) : keep_all_(keep_all) {}

  bool wants(std::string_view category) override;
  std::string_view wanted_prefix(std::string_view category) override;
  void process(const TraceProcess& event) override;
  void thread(const TraceThread& event) override;
  void span(const TraceSpan& event) override;
  void begin(const TraceSpan& event) override;
  void end(std::int64_t pid, std::int64_t tid, std::int64_t time_ns) override;
  void instant(const TraceInstant& event) override;
  void counter(const TraceCounter& event) override;

  std::map<std::int64_t, CollectedProcess>& processes() { return processes_; }
  const TraceOrigin& origin() const { return origin_; }
  // True if the order of the spans made it necessary to read the trace again and keep all.
  bool is_uncertain() const;
  CollectedNames take_names() { return {std::move(texts_), std::move(communicator_names_)}; }

 private:
  CollectedThread& thread_of(std::int64_t pid, std::int64_t tid);
  std::uint32_t name_id(std::string_view text);
  std::uint32_t frequent_name_id(std::string_view text);
  enum class KernelKind : std::uint8_t { unknown, compute, collective, copy };
  KernelKind kind_of_kernel(std::uint32_t name);
  struct CategoryKind {
    bool is_known = false, is_range = false, is_runtime = false, is_ignored = false, is_operator = false;
    std::string text{};
  };
  const CategoryKind& kind_of_category(std::string_view text);
  std::uint32_t communicator_id(const std::string& name);
  void take(const TraceSpan& event);
  void span_of_xla(const TraceSpan& event);
  void range(const TraceSpan& event);
  void gpu_span(const TraceSpan& event, CollectedThread& thread);
  void unnumbered_collective(const TraceSpan& event, std::string_view operation, CollectedThread& thread);

  bool keep_all_;
  TraceOrigin origin_;
  std::map<std::int64_t, CollectedProcess> processes_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::vector<std::string> texts_;
  std::array<std::uint32_t, 4096> frequent_{};   // Ids of names, found by a part of the name.
  std::vector<KernelKind> kernel_kinds_;         // By the id of the name.
  std::array<CategoryKind, 64> category_kinds_;  // Of other programs, found by a part of the text.
  std::unordered_map<std::string, std::uint32_t> communicators_;
  std::vector<std::string> communicator_names_;
  std::string scratch_;
  CollectedThread* last_ = nullptr;
  std::int64_t last_pid_ = 0;
  std::int64_t last_tid_ = 0;
};

// Converts the collected process into a rank. The process is empty afterwards.
RankModel rank_model_of(int rank, CollectedProcess& process);

}  // namespace farandole
