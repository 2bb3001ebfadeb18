// A rank's flight recorder as the rest of Farandole sees it: spans, collectives, instants and counters go
// into per-thread rings in one mapped file. record functions may be called from any thread and never allocate
// (after a thread's first event), lock, wait or make a system call, but for a wake-up of the page keeper once
// in thousands of records; a full ring overwrites its oldest records, which are counted. A window of steps is
// kept as it began: what has no room is dropped and counted, as are the events of others than the up to 32
// threads at a time that have a ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "farandole/base/clock.h"
#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/current_span.h"
#include "farandole/timeline/event.h"
#include "farandole/timeline/step_window.h"

namespace farandole {

struct TimelineOptions {
  std::filesystem::path file;  // RUN/recorder/rank-0003.ftl; empty: record nothing
  StepWindow window;
  std::size_t recorder_bytes = std::size_t{64} << 20;
  int rank = 0;
  int world_size = 1;
  std::string host;
  // Where the file lies until the timeline ends (base/staging_file.h); empty: where `file` says.
  std::filesystem::path node_folder = {};
  bool node_folder_chosen = false;  // not wished for: where it is full, the file lies where `file` says
};

// An interned name: make it once, outside of loops.
struct NameId {
  std::uint32_t value = 0;
};

// A line of the trace that is not a thread of this program, such as a GPU's stream.
struct TrackId {
  std::uint16_t value = 0;
};

namespace recorder {
struct OpenEvent;
}
class InternedNames;
class LaunchHistory;
class RecorderRings;

class Timeline {
 public:
  // Records nothing: for programs and tests that want no file.
  Timeline();
  // Throws Error where the file cannot be created; where the disk is full it warns and records nothing.
  explicit Timeline(const TimelineOptions& options);
  ~Timeline();  // no thread may be in a call, or call later
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  bool enabled() const { return rings_ != nullptr; }
  // Where the records are to be read meanwhile; empty: nothing is recorded.
  std::filesystem::path file() const;
  // Enabled, and the present step is in the window, or there is none and the window has not passed.
  bool recording() const { return enabled() && is_recorded(step()); }
  NameId intern(std::string_view name);  // takes a lock; thread-safe
  // What this rank runs, such as a version, for who compares the ranks later: kept as long as the file.
  void set_metadata(std::string_view fact, std::string_view value);
  void name_thread(std::string_view name);  // the calling thread; "training" is the one that trains
  void set_step(std::int64_t step);         // from now on, on all threads; -1: outside of steps
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  void span(Category category, NameId name, std::int64_t start_ns, std::int64_t end_ns) noexcept;
  // As above; takes a lock only when this thread uses `name` for the first time, or has used hundreds of
  // others since.
  void span(Category category, const char* name, std::int64_t start_ns, std::int64_t end_ns) noexcept;
  void collective(NameId name, NameId operation, const Collective& what, std::int64_t start_ns,
                  std::int64_t end_ns) noexcept;
  // The calling thread, or whoever has the track, begins a collective: what a reader finds where the process
  // does not live to record it. collective() and collective_on() end it.
  void begin_collective(NameId name, NameId operation, const Collective& what,
                        std::int64_t start_ns) noexcept;
  void begin_collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                           std::int64_t start_ns) noexcept;
  void instant(NameId name) noexcept { instant(name, now_ns()); }
  void instant(NameId name, std::int64_t at_ns, std::uint64_t bytes = 0) noexcept;
  void counter(NameId name, double value) noexcept { counter(name, value, now_ns()); }
  void counter(NameId name, double value, std::int64_t at_ns) noexcept;

  // A track takes the place of a thread; one thread at a time may record into it. None is left: events are
  // dropped.
  TrackId add_track(std::string_view name);
  void span_on(TrackId track, Category category, NameId name, const TrainingPlace& launched_in,
               std::int64_t start_ns, std::int64_t end_ns) noexcept;

  void collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                     std::int64_t start_ns, std::int64_t end_ns) noexcept;

  // From now on `history` is told of each phase that the training thread enters; nullptr: nobody is. It is
  // called by that thread, for spans that are recorded, and outlives its use. From the training thread.
  void tell_phases(LaunchHistory* history);

  // Keeps the best round trips with rank 0's clock in the recorder's file, in place of those it had.
  void set_clock(std::span<const RoundTrip> samples);

  const TimelineOptions& options() const { return options_; }

 private:
  friend class Span;
  bool is_recorded(std::int64_t step) const {
    if (step < 0) return !window_passed_.load(std::memory_order_relaxed);
    return step >= options_.window.first && step <= options_.window.last;
  }
  void begin(Span& span) noexcept;
  void end(const Span& span, std::int64_t end_ns) noexcept;
  void end(const Span& span, const MpiCall& what, std::int64_t end_ns) noexcept;
  void reopen(recorder::OpenEvent& open, const Span* span) const noexcept;
  void tell_phase(const Span* innermost, std::int64_t at_ns) const noexcept;
  void collective(const TrackId* track, NameId name, NameId operation, const Collective& what,
                  std::int64_t start_ns, std::int64_t end_ns) noexcept;
  TimelineOptions options_;
  std::atomic<std::int64_t> step_{-1};
  std::atomic<bool> window_passed_{false};
  std::atomic<LaunchHistory*> history_{nullptr};
  std::shared_ptr<RecorderRings> rings_;  // null: nothing is recorded
  std::unique_ptr<InternedNames> names_;
  std::mutex clock_mutex_;
};

// Records the time from its construction to its destruction, and is meanwhile what its thread is said to do
// where that is recorded or watched (current_span.h). `name` must be a string literal or otherwise outlive
// it. Lives on the stack of the thread that made it.
class Span {
 public:
  Span(Timeline& timeline, Category category, const char* name)
      : live_(timeline.recording() || current_span.watched) {
    if (live_) [[unlikely]]
      begin(timeline, category, name);
  }
  ~Span() {
    if (live_) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  static void* operator new(std::size_t) = delete;

  // Of the thread's own live spans, as a signal handler on it may read them.
  Category category() const { return category_; }
  const char* name() const { return name_; }
  std::int64_t start_ns() const { return start_ns_; }  // 0: nothing is recorded
  const Span* outer() const { return outer_; }

 protected:
  bool live() const { return live_; }
  // Ends it as an MPI call of the program, before its destruction.
  void end(const MpiCall& what) noexcept;

 private:
  friend class Timeline;
  void begin(Timeline& timeline, Category category, const char* name) noexcept;
  void end() noexcept;

  const bool live_;  // recorded or watched; else nothing that follows is set
  Category category_;
  std::uint32_t name_id_;  // where something is recorded
  Timeline* timeline_;
  const char* name_;
  std::int64_t start_ns_;
  const Span* outer_;
};

}  // namespace farandole
