// Writes a Chrome trace in the form of event.h to a gzip file, as a stream.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/base/files/atomic_file.h"
#include "farandole/timeline/event.h"
#include "farandole/timeline/gzip/gzip_writer.h"

namespace farandole {

// Appends `text` with quotation marks and escapes (RFC 8259). Each byte that is not UTF-8
// (RFC 3629) becomes U+FFFD.
void append_json_text(fmt::memory_buffer& to, std::string_view text);

// Times are on rank 0's clock, relative to the trace's start. Negative times become 0. Texts may contain
// anything: they are escaped, and bytes that are not UTF-8 become U+FFFD. The spans of a thread must be
// nested or disjoint, and a span must come before the spans inside it, because the viewers require this.
// Memory is bounded by a few pieces of GzipWriter.
// Units: nanoseconds.
class TraceWriter {
 public:
  struct Header {
    int ranks = 1;
    std::span<const std::int64_t> clock_residual_ns;  // by rank; negative means unknown
  };
  // The thread to which an event belongs. Thread 0 is the training thread.
  struct Place {
    int rank = 0;
    int thread = 0;  // 0 to 999
  };
  struct Interval {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  struct SpanFacts {
    Category category = Category::other;
    std::string_view name;
    std::int64_t step = -1;           // -1 means outside of steps
    std::optional<Category> phase{};  // the phase that launched the GPU work
    MpiCall call{};                   // details of an MPI call of the program; a copy of a GPU has bytes
    std::int64_t queued_ns = 0;       // how long before its start the GPU work was launched; 0: unknown
  };

  // Writes a temporary file beside `path`, which finish() publishes. `threads` is the number of compressing
  // threads; 0 means GzipWriter's default.
  // Throws: Error if writing fails. This also holds for all functions below.
  TraceWriter(const std::filesystem::path& path, const Header& header, unsigned threads = 0);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void process(int rank, std::string_view host);
  // A text that viewers show beside the process's name.
  void process_label(int rank, std::string_view label);
  void thread(Place place, std::string_view name);
  void span(Place place, Interval when, const SpanFacts& what);
  void collective(Place place, std::string_view name, std::string_view operation, const Collective& what,
                  std::int64_t step, Interval when);
  void instant(Place place, std::string_view name, std::int64_t at_ns, std::uint64_t bytes = 0);
  // Writes nothing if `value` is not finite.
  void counter(int rank, std::string_view name, std::int64_t at_ns, double value);
  // An arrow from one span to another; each is given by its thread and start. `id` must be unique in a trace.
  void flow(std::uint64_t id, Place from, std::int64_t from_ns, Place to, std::int64_t to_ns);

  void finish();
  std::uint64_t events() const { return events_; }

 private:
  // Reserves space for an event with `text_bytes` of text and returns the event's start.
  // end_event() releases the rest.
  char* begin_event(std::size_t text_bytes);
  void end_event(char* end);
  // The text with its quotation marks, valid until the next call.
  std::string_view quoted(std::string_view text);
  char* put_place(char* at, Place place);
  char* put_span(char* at, Place place, Category category, std::string_view quoted_name, Interval when);

  // A cache of names in JSON, found by length and ends of the name, because the same names
  // are written many times.
  struct Quoted {
    std::string text;
    std::string json;
  };

  AtomicFile published_;
  GzipWriter file_;
  fmt::memory_buffer buffer_;
  std::array<Quoted, 256> quoted_;
  Place last_place_{-1, -1};
  std::string place_text_;
  std::uint64_t events_ = 0;
};

}  // namespace farandole
