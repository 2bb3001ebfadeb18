// Reads a Chrome trace in one pass and hands its events, typed and in nanoseconds, to a visitor. One thread
// per call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/timeline/clock/trace_time.h"
#include "farandole/timeline/event.h"

namespace farandole {

// "otherData" of a trace that Farandole wrote; all empty for others.
struct TraceHeader {
  std::optional<std::int64_t> farandole_trace;  // version of the vocabulary
  std::optional<std::int64_t> ranks;
  // By rank: what clock alignment could not remove; nullopt where the rank's clock is unknown.
  std::vector<std::optional<double>> clock_residual_us;

  std::optional<std::int64_t> kineto_rank, kineto_world_size;  // PyTorch's "distributedInfo"
};

// Texts are valid during the call only. Times are nanoseconds on the trace's clock, within ±2^61 (73 years).
struct TraceProcess {
  std::int64_t pid = 0;
  std::string_view name;
  std::optional<std::int64_t> rank;
  std::string_view host;
};
struct TraceThread {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  std::string_view name;
};
// What PyTorch's profiler says of a collective: of NCCL's kernels, and of Gloo's annotations.
struct TraceMessage {
  std::string_view collective, dtype, process_group;
  std::optional<std::uint64_t> elements, ranks;
};
struct TraceSpan {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  Category category = Category::other;  // also for names that the vocabulary does not have
  std::string_view name;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;  // >= 0
  std::optional<std::int64_t> step;
  std::string_view operation;            // of a collective
  std::optional<Collective> collective;  // where the span has a sequence number
  std::string_view category_text;        // as it stands there
  TraceMessage message;
  std::optional<Category> phase;  // in which GPU work was launched
  std::uint64_t bytes = 0;        // of an MPI call of the program
};
struct TraceCounter {
  std::int64_t pid = 0;
  std::string_view name;
  std::int64_t time_ns = 0;
  double value = 0;
};
struct TraceInstant {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  std::string_view name;
  std::int64_t time_ns = 0;
  std::uint64_t bytes = 0;  // 0: it says none
};

class TraceVisitor {
 public:
  virtual ~TraceVisitor() = default;
  // Spans of categories that are not wanted may be left out.
  virtual bool wants([[maybe_unused]] std::string_view category) const { return true; }
  virtual void process(const TraceProcess&) {}
  virtual void thread(const TraceThread&) {}
  virtual void span(const TraceSpan&) {}
  virtual void begin(const TraceSpan&) {}  // of a span whose end follows: its duration is 0
  virtual void end(std::int64_t /*pid*/, std::int64_t /*tid*/, std::int64_t /*time_ns*/) {}
  virtual void counter(const TraceCounter&) {}
  virtual void instant(const TraceInstant&) {}
};

struct TraceSummary {
  TraceHeader header;
  std::uint64_t events = 0;           // sound ones, of all kinds
  std::uint64_t unused = 0;           // of them: of kinds that are not visited (flows, …)
  std::uint64_t damaged = 0;          // left out
  std::uint64_t bytes = 0;            // read, uncompressed
  std::string damage;                 // why it ends early; "" where it does not
  std::vector<std::string> warnings;  // what is damaged, and where: one line each, with file and byte
};

// Visits every sound event, in the order of the file. What is damaged is left out and named in `warnings`.
// Throws UserError where the file cannot be opened, CorruptInput where it holds no sound event.
TraceSummary read_trace(const std::filesystem::path& file, TraceVisitor& visitor);

}  // namespace farandole
