// Streams a Chrome trace, in the form that event.h defines, into a gzip file. Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "farandole/timeline/event.h"
#include "farandole/timeline/gzip/gzip_writer.h"

namespace farandole {

// Times are in ns, on rank 0's clock, from the trace's start (≥ 0, else taken as 0). Text may hold anything:
// it is escaped, and bytes that are not UTF-8 become U+FFFD. The spans of a thread must nest or be disjoint,
// and a span must come before those inside it: what the viewers ask for. Memory is bounded by a few pieces of
// GzipWriter.
class TraceWriter {
 public:
  struct Header {
    int ranks = 1;
    std::span<const std::int64_t> clock_residual_ns;  // by rank; negative: unknown
  };
  // Where a thread's events go; thread 0 is the one that trains.
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
    std::int64_t step = -1;           // -1: outside of steps
    std::optional<Category> phase{};  // the one that launched it, of GPU work
    MpiCall call{};                   // what is known of it, where it is an MPI call of the program
  };

  // Writes beside `path`, which finish() publishes; `threads` compress, 0: as GzipWriter has it. Throws
  // Error, as all functions do.
  TraceWriter(const std::filesystem::path& path, const Header& header, unsigned threads = 0);
  ~TraceWriter();  // without finish() nothing is left
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void process(int rank, std::string_view host);
  // What viewers show beside the process's name.
  void process_label(int rank, std::string_view label);
  void thread(Place place, std::string_view name);
  void span(Place place, Interval when, const SpanFacts& what);
  void collective(Place place, std::string_view name, std::string_view operation, const Collective& what,
                  std::int64_t step, Interval when);
  void instant(Place place, std::string_view name, std::int64_t at_ns, std::uint64_t bytes = 0);
  void counter(int rank, std::string_view name, std::int64_t at_ns,
               double value);  // nothing where not finite
  // From one slice to another, each given by its thread and start. `id` is used once in a trace.
  void flow(std::uint64_t id, Place from, std::int64_t from_ns, Place to, std::int64_t to_ns);

  void finish();
  std::uint64_t events() const { return events_; }

 private:
  // Room for an event with `text_bytes` of text and the event's start; end_event() takes back what is left.
  char* begin_event(std::size_t text_bytes);
  void end_event(char* end);
  // With its quotation marks; valid until the next call.
  std::string_view quoted(std::string_view text);
  char* put_place(char* at, Place place);
  char* put_span(char* at, Place place, Category category, std::string_view quoted_name, Interval when);

  // How a name was written before, found by its length and ends: names come again and again.
  struct Quoted {
    std::string text;
    std::string json;
  };

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  GzipWriter file_;
  fmt::memory_buffer buffer_;
  std::array<Quoted, 256> quoted_;
  Place last_place_{-1, -1};
  std::string place_text_;
  std::uint64_t events_ = 0;
  bool finished_ = false;
};

}  // namespace farandole
