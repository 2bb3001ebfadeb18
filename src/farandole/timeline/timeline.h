// A rank's flight recorder as the rest of Farandole sees it: spans, collectives, instants and counters go into per-thread
// rings in one mapped file. record functions may be called from any thread and never allocate (after a thread's first
// event), lock, wait or make a system call; a full ring overwrites its oldest records, which are counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "farandole/base/clock.h"
#include "farandole/timeline/event.h"

namespace farandole {

// Which steps are recorded: --timeline off|steps=A-B|all (A and B inclusive; events outside of steps always are, but for off).
struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;  // last < first: off
  static StepWindow parse(std::string_view text);  // throws UserError
  bool off() const { return last < first; }
};

struct TimelineOptions {
  std::filesystem::path file;  // RUN/recorder/rank-0003.ftl; empty: record nothing
  StepWindow window;
  std::size_t recorder_bytes = std::size_t{64} << 20;
  int rank = 0;
  int world_size = 1;
  std::string host;
};

// An interned name: make it once, outside of loops.
struct NameId {
  std::uint32_t value = 0;
};

class Timeline {
 public:
  // Records nothing: for programs and tests that want no file.
  Timeline();
  // Throws Error where the file cannot be created.
  explicit Timeline(const TimelineOptions& options);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  bool enabled() const;
  NameId intern(std::string_view name);         // takes a lock; thread-safe
  void name_thread(std::string_view name);      // the calling thread; "training" is the one that trains
  void set_step(std::int64_t step);             // from now on, on all threads; -1: outside of steps
  std::int64_t step() const;

  void span(Category category, NameId name, std::int64_t start_ns, std::int64_t end_ns) noexcept;
  void collective(NameId name, NameId operation, const Collective& what, std::int64_t start_ns,
                  std::int64_t end_ns) noexcept;
  void instant(NameId name) noexcept;
  void counter(NameId name, double value) noexcept;

  const TimelineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Records the time from its construction to its destruction. `name` must be a string literal or otherwise outlive it.
class Span {
 public:
  Span(Timeline& timeline, Category category, const char* name)
      : timeline_(timeline), category_(category), name_(name), start_ns_(timeline.enabled() ? now_ns() : 0) {}
  ~Span() {
    if (timeline_.enabled()) timeline_.span(category_, timeline_.intern(name_), start_ns_, now_ns());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Timeline& timeline_;
  Category category_;
  const char* name_;
  std::int64_t start_ns_;
};

}  // namespace farandole
