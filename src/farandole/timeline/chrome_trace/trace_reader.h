// Reads a Chrome trace in one pass and gives its events to a visitor, with typed fields
// and times in nanoseconds.
// Thread safety: any thread may call this at any time. Each call needs its own visitor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/timeline/event.h"

namespace farandole {

// "otherData" of a trace that Farandole wrote; all fields are empty for other traces.
struct TraceHeader {
  std::optional<std::int64_t> farandole_trace;  // version of the vocabulary
  std::optional<std::int64_t> ranks;
  // Clock error that remains after alignment, by rank; std::nullopt if the rank's clock is unknown.
  std::vector<std::optional<double>> clock_residual_us;

  std::optional<std::int64_t> kineto_rank, kineto_world_size;  // PyTorch's "distributedInfo"
  std::string kineto_backend;
};

// Texts are valid only during the call. Times are on the trace's clock, within ±2^61 ns (73 years).
// Units: nanoseconds.
struct TraceProcess {
  std::int64_t pid = 0;  // negative if the trace identifies the process by a text
  std::string_view name;
  std::optional<std::int64_t> rank;
  std::string_view host;
};
struct TraceThread {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  std::string_view name;
};
// What PyTorch's profiler records about a collective: about NCCL's kernels and Gloo's annotations. `ranks` is
// also the size of the communicator of a program's own MPI call. Only work of a device has a stream, and only
// copies have a direction.
struct TraceMessage {
  std::string_view collective, dtype, process_group, direction;
  std::optional<std::uint64_t> elements, ranks, sequence, stream;
};
struct TraceSpan {
  std::int64_t pid = 0;
  std::int64_t tid = 0;
  Category category = Category::other;  // also for categories that the vocabulary does not contain
  std::string_view name;
  std::int64_t start_ns = 0;
  std::int64_t duration_ns = 0;  // >= 0
  std::optional<std::int64_t> step;
  std::string_view operation;            // of a collective
  std::optional<Collective> collective;  // set if the span has a sequence number
  std::string_view category_text;        // the category as it is in the file
  TraceMessage message;
  std::optional<Category> phase;  // the phase in which GPU work was launched
  std::int64_t queued_ns = 0;     // how long before its start that was; 0: unknown
  std::uint64_t bytes = 0;        // of an MPI call of the program, or of a copy of a GPU
  // The number that links the work of a device to the call that launched it, in traces of PyTorch's profiler.
  std::optional<std::uint64_t> correlation;
};
struct TraceInstant {
  std::int64_t pid = 0;
  std::string_view name;
  std::int64_t time_ns = 0;
};

struct TraceCounter {
  std::int64_t pid = 0;
  std::string_view name;
  std::int64_t time_ns = 0;
  double value = 0;
};

class TraceVisitor {
 public:
  virtual ~TraceVisitor() = default;
  // Spans of categories that are not wanted may be skipped.
  virtual bool wants([[maybe_unused]] std::string_view category) { return true; }
  // Of a wanted category, only spans whose names begin with this are wanted.
  virtual std::string_view wanted_prefix([[maybe_unused]] std::string_view category) { return {}; }
  virtual void process(const TraceProcess&) {}
  virtual void thread(const TraceThread&) {}
  virtual void span(const TraceSpan&) {}
  virtual void begin(const TraceSpan&) {}  // of a span whose end follows; its duration is 0
  virtual void end(std::int64_t /*pid*/, std::int64_t /*tid*/, std::int64_t /*time_ns*/) {}
  virtual void instant(const TraceInstant&) {}
  virtual void counter(const TraceCounter&) {}  // one with a number named "value"
};

struct TraceSummary {
  TraceHeader header;
  std::uint64_t events = 0;           // undamaged events of all kinds
  std::uint64_t unused = 0;           // those of them whose kind is not visited (flows, …)
  std::uint64_t damaged = 0;          // events that were left out
  std::uint64_t bytes = 0;            // uncompressed bytes read
  std::string damage;                 // why the trace ends early; "" if it does not
  std::vector<std::string> warnings;  // one line per problem, with file and byte
};

// Visits every undamaged event in the order of the file. Damaged events are left out
// and described in `warnings`.
// Throws: UserError if the file cannot be opened.
// Throws: CorruptInput if the file contains no undamaged event.
TraceSummary read_trace(const std::filesystem::path& file, TraceVisitor& visitor);

}  // namespace farandole
