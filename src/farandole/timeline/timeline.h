// A rank's flight recorder as the rest of Farandole uses it. Spans, collectives, instants and counters go
// into per-thread rings in one mapped file. After a thread's first event, recording never allocates, locks or
// waits, and makes no system call except one wake-up of the page prefaulter per thousands of records. A full
// ring overwrites its oldest records and counts them. If a window of steps is recorded, its first events are
// kept, and later ones that do not fit are dropped and counted. Up to 32 threads at a time have a ring;
// events of further threads are dropped and counted.
// Thread safety: any thread may call this at any time. Some functions say that fewer threads may.
// Units: times are nanoseconds of now_ns() (base/clock.h).
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
#include "farandole/timeline/event.h"
#include "farandole/timeline/step_window.h"

namespace farandole {

struct TimelineOptions {
  std::filesystem::path file;  // RUN/recorder/rank-0003.ftl; empty: record nothing
  StepWindow window = {};
  std::size_t recorder_bytes = std::size_t{64} << 20;
  int rank = 0;
  int world_size = 1;
  std::string host = {};
  // Folder on the node's own disk. The file is there while the timeline records and is then copied to
  // `file`. Empty: the file is at `file` from the start.
  std::filesystem::path node_folder = {};
  // Chosen by "auto": if it is full, the recorder is written at `file` instead.
  bool node_folder_chosen = false;
};

// An interned name. Create it once, outside of loops.
struct NameId {
  std::uint32_t value = 0;
};

// A line of the trace that is not a thread of this program, for example a stream of a GPU.
struct TrackId {
  std::uint16_t value = 0;
};

namespace recorder {
struct OpenEvent;
}
class InternedNames;
class LaunchHistory;
class RecorderRings;
class Span;
struct RoundTrip;

class Timeline {
 public:
  // Records nothing. For programs and tests that need no file.
  Timeline();
  // If the disk is full, warns and records nothing.
  // Throws: Error if the file cannot be created.
  explicit Timeline(const TimelineOptions& options);
  ~Timeline();  // no thread may be in a call or make one later
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  bool enabled() const { return rings_ != nullptr; }
  // The path to read the records from while the timeline exists. Empty if nothing is recorded.
  std::filesystem::path file() const;
  // True if the timeline is enabled and the current step is in the window. Outside of steps, true until
  // the window has passed.
  bool recording() const { return enabled() && is_recorded(step()); }
  NameId intern(std::string_view name);  // takes a lock
  // Stores a fact about this rank, for example a version, for a later comparison of the ranks. It is kept as
  // long as the file.
  void set_metadata(std::string_view fact, std::string_view value);
  void name_thread(std::string_view name);  // names the calling thread; "training" is the thread that trains
  void set_step(std::int64_t step);         // applies to all threads; -1 means outside of steps
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  void span(Category category, NameId name, std::int64_t start_ns, std::int64_t end_ns) noexcept;
  // As above. It takes a lock only if this thread uses `name` for the first time or has used hundreds
  // of other names since.
  void span(Category category, const char* name, std::int64_t start_ns, std::int64_t end_ns) noexcept;
  void collective(NameId name, NameId operation, const Collective& what, std::int64_t start_ns,
                  std::int64_t end_ns) noexcept;
  // The calling thread, or the user of the track, begins a collective. If the process is killed before it
  // records the collective, readers find this entry. collective() and collective_on() end it.
  void begin_collective(NameId name, NameId operation, const Collective& what,
                        std::int64_t start_ns) noexcept;
  void begin_collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                           std::int64_t start_ns) noexcept;
  void instant(NameId name) noexcept { instant(name, now_ns()); }
  void instant(NameId name, std::int64_t at_ns, std::uint64_t bytes = 0) noexcept;
  void counter(NameId name, double value) noexcept { counter(name, value, now_ns()); }
  void counter(NameId name, double value, std::int64_t at_ns) noexcept;

  // A track takes the place of a thread. If none is left, the events of the track are dropped.
  // Thread safety: any thread may call this at any time. Use a track from one thread at a time.
  TrackId add_track(std::string_view name);
  void span_on(TrackId track, Category category, NameId name, const TrainingPlace& launched_in,
               std::int64_t start_ns, std::int64_t end_ns) noexcept {
    span_on(track, category, name, launched_in, start_ns, end_ns, start_ns, 0);
  }
  // The same for the work of a GPU. `bytes`: of a copy.
  void span_on(TrackId track, Category category, NameId name, const TrainingPlace& launched_in,
               std::int64_t start_ns, std::int64_t end_ns, std::int64_t launch_ns,
               std::uint64_t bytes) noexcept;

  void collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                     std::int64_t start_ns, std::int64_t end_ns) noexcept;

  // Reports each phase that the training thread enters to `history`, or to nobody if it is nullptr. The
  // training thread calls it, for recorded spans only. `history` must outlive its use.
  // Thread safety: call from the training thread only.
  void tell_phases(LaunchHistory* history);

  // Stores the best round trips with rank 0's clock in the recorder's file and replaces those stored before.
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
  void count_checkpoint(const Span& span, std::int64_t end_ns) noexcept;
  void end(const Span& span, const MpiCall& what, std::int64_t end_ns) noexcept;
  void reopen(recorder::OpenEvent& open, const Span* span) const noexcept;
  void tell_phase(const Span* innermost, std::int64_t at_ns) const noexcept;
  void collective(const TrackId* track, NameId name, NameId operation, const Collective& what,
                  std::int64_t start_ns, std::int64_t end_ns) noexcept;
  TimelineOptions options_;
  std::atomic<std::int64_t> step_{-1};
  std::atomic<bool> window_passed_{false};
  std::atomic<LaunchHistory*> history_{nullptr};
  std::shared_ptr<RecorderRings> rings_;  // null if nothing is recorded
  std::unique_ptr<InternedNames> names_;
  std::mutex clock_mutex_;
};

// Which spans a thread is in, innermost first. The thread sets it for spans that are recorded and, while it
// is watched, for all spans. Farandole's own.
// Thread safety: none; use from one thread at a time. Other threads may read the category, and nothing else.
struct CurrentSpan {
  bool watched = false;  // set by the thread itself
  std::atomic<const Span*> innermost{nullptr};
  std::atomic<Category> category{Category::other};  // of the innermost span; valid only if there is one
};

inline constinit thread_local CurrentSpan current_span;

// Records the time between its construction and its destruction. Until then it is the current activity of its
// thread if it is recorded or watched (CurrentSpan). `name` must be a string literal or outlive the span.
// A span must be on the stack of the thread that created it.
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

  // For the thread's own live spans, which a signal handler on it may read.
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
