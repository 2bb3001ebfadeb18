#include "farandole/timeline/timeline.h"

#include <optional>
#include <utility>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/gpu/launch_history.h"
#include "farandole/timeline/recorder/interned_names.h"
#include "farandole/timeline/recorder/recorder_rings.h"

namespace farandole {
namespace {

// The span around this thread's last MPI call. Calls in different spans are never merged into one record.
constinit thread_local const Span* polled_in = nullptr;

recorder::OpenEvent opened(NameId name, NameId operation, const Collective& what, std::int64_t start_ns) {
  return {start_ns,
          name.value,
          operation.value,
          what.sequence,
          what.communicator,
          RecordKind::collective,
          Category::communication};
}

void fill_span(Record& record, Category category, std::uint32_t name, std::int64_t start_ns,
               std::int64_t end_ns) {
  record.kind = RecordKind::span;
  record.category = category;
  record.name = name;
  record.start_ns = start_ns;
  record.end_ns = end_ns;
}

}  // namespace

Timeline::Timeline() = default;

Timeline::Timeline(const TimelineOptions& options) : options_(options) {
  if (options.file.empty() || options.window.off()) return;
  auto map = RecorderMap::create(options);
  if (map == nullptr) return;
  using enum RecorderRings::WhenFull;
  rings_ = std::make_shared<RecorderRings>(std::move(map), options.window.bounded() ? drops : overwrites);
  names_ = std::make_unique<InternedNames>(rings_->map(), rings_->instance, rings_->mutex_of_names());
}

Timeline::~Timeline() = default;

std::filesystem::path Timeline::file() const {
  return enabled() ? rings_->map().path : std::filesystem::path();
}

NameId Timeline::intern(std::string_view name) {
  return {enabled() ? names_->intern(name) : 0};
}

void Timeline::set_metadata(std::string_view fact, std::string_view value) {
  intern(std::string(recorder::fact_mark).append(fact).append("=").append(value));
}

void Timeline::name_thread(std::string_view name) {
  if (enabled()) rings_->name_thread(name);
}

void Timeline::set_step(std::int64_t step) {
  const auto last = options_.window.last;
  if (step > last || (this->step() == last && step < last))
    window_passed_.store(true, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  if (!enabled()) return;
  auto& header = rings_->map().header();
  std::atomic_ref(header.step).store(step, std::memory_order_relaxed);
  if (step < 0) return;
  const auto now = now_ns();
  if (header.totals.first_step_ns == 0) {
    header.totals.first_step = step;
    std::atomic_ref(header.totals.first_step_ns).store(now, std::memory_order_release);
  }
  std::atomic_ref(header.totals.newest_step_ns).store(now, std::memory_order_relaxed);
}

void Timeline::span(Category category, NameId name, std::int64_t start_ns, std::int64_t end_ns) noexcept {
  if (!recording()) return;
  rings_->write(rings_->ring(), step(),
                [&](Record& record) { fill_span(record, category, name.value, start_ns, end_ns); });
}

void Timeline::span(Category category, const char* name, std::int64_t start_ns,
                    std::int64_t end_ns) noexcept {
  if (recording()) span(category, NameId{names_->id_of(name)}, start_ns, end_ns);
}

void Timeline::begin(Span& span) noexcept {
  span.name_id_ = names_->id_of(span.name_);
  ThreadRing* const ring = rings_->ring();
  span.start_ns_ = now_ns();
  if (rings_->is_training(ring)) tell_phase(&span, span.start_ns_);
  if (ring != nullptr)
    ring->entry->open = {span.start_ns_, span.name_id_, 0, 0, 0, RecordKind::span, span.category_};
}

// Of spans within each other, only the outermost counts.
void Timeline::count_checkpoint(const Span& ended, std::int64_t end_ns) noexcept {
  for (const auto* outer = ended.outer_; outer != nullptr; outer = outer->outer_)
    if (outer->category_ == Category::checkpoint) return;
  auto& totals = rings_->map().header().totals;
  auto& sum = totals.first_step_ns == 0 ? totals.restoring_ns : totals.saving_ns;
  std::atomic_ref(sum).store(sum + end_ns - ended.start_ns_, std::memory_order_relaxed);
}

void Timeline::end(const Span& ended, std::int64_t end_ns) noexcept {
  ThreadRing* const ring = rings_->ring();
  if (ended.category_ == Category::checkpoint && rings_->is_training(ring)) [[unlikely]]
    count_checkpoint(ended, end_ns);
  if (const auto step = this->step(); is_recorded(step))
    rings_->write(ring, step, [&](Record& record) {
      fill_span(record, ended.category_, ended.name_id_, ended.start_ns_, end_ns);
    });
  if (rings_->is_training(ring)) tell_phase(ended.outer_, end_ns);
  if (ring != nullptr) reopen(ring->entry->open, ended.outer_);
}

void Timeline::tell_phases(LaunchHistory* history) {
  history_.store(history, std::memory_order_release);
}

void Timeline::tell_phase(const Span* innermost, std::int64_t at_ns) const noexcept {
  LaunchHistory* const history = history_.load(std::memory_order_acquire);
  if (history == nullptr) return;
  while (innermost != nullptr &&
         (innermost->category_ == Category::other || innermost->category_ == Category::step))
    innermost = innermost->outer_;
  history->enter(innermost != nullptr ? std::optional(innermost->category_) : std::nullopt, at_ns);
}

void Timeline::end(const Span& ended, const MpiCall& what, std::int64_t end_ns) noexcept {
  if (!recording()) return;
  Record record{};
  record.step = step();
  record.kind = RecordKind::span;
  record.category = ended.category_;
  record.name = ended.name_id_;
  record.set_mpi_call(what);
  record.start_ns = ended.start_ns_;
  record.end_ns = end_ns;
  if (what.polls == 0 || polled_in != ended.outer_ || !rings_->extends_last(record))
    rings_->write(rings_->ring(), record.step, [&](Record& next) {
      record.track = next.track;
      next = record;
    });
  polled_in = ended.outer_;
  if (ThreadRing* const ring = rings_->ring(); ring != nullptr) reopen(ring->entry->open, ended.outer_);
}

void Timeline::reopen(recorder::OpenEvent& open, const Span* span) const noexcept {
  if (span != nullptr && span->timeline_ == this && span->start_ns_ != 0)
    open = {span->start_ns_, span->name_id_, 0, 0, 0, RecordKind::span, span->category_};
  else
    open.kind = RecordKind::none;
}

void Timeline::begin_collective(NameId name, NameId operation, const Collective& what,
                                std::int64_t start_ns) noexcept {
  if (!recording()) return;
  if (ThreadRing* const ring = rings_->ring(); ring != nullptr)
    ring->entry->open = opened(name, operation, what, start_ns);
}

void Timeline::begin_collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                                   std::int64_t start_ns) noexcept {
  if (recording() && track.value < recorder::thread_slots)
    rings_->in_slot(track.value).entry->open = opened(name, operation, what, start_ns);
}

void Timeline::collective(const TrackId* track, NameId name, NameId operation, const Collective& what,
                          std::int64_t start_ns, std::int64_t end_ns) noexcept {
  if (!recording()) return;
  if (track != nullptr && track->value >= recorder::thread_slots) return rings_->drop();
  rings_->write(rings_->ring(), step(), [&](Record& record) {
    record.kind = RecordKind::collective;
    record.category = Category::communication;
    record.name = name.value;
    record.set_collective(what, operation.value);
    record.start_ns = start_ns;
    record.end_ns = end_ns;
    if (track != nullptr) record.track = track->value;
  });
  if (track != nullptr)
    rings_->in_slot(track->value).entry->open = {};
  else if (ThreadRing* const ring = rings_->ring(); ring != nullptr)
    reopen(ring->entry->open, current_span.innermost.load(std::memory_order_relaxed));
}

void Timeline::collective(NameId name, NameId operation, const Collective& what, std::int64_t start_ns,
                          std::int64_t end_ns) noexcept {
  collective(nullptr, name, operation, what, start_ns, end_ns);
}

void Timeline::collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                             std::int64_t start_ns, std::int64_t end_ns) noexcept {
  collective(&track, name, operation, what, start_ns, end_ns);
}

void Timeline::instant(NameId name, std::int64_t at_ns, std::uint64_t bytes) noexcept {
  if (!recording()) return;
  rings_->write(rings_->ring(), step(), [&](Record& record) {
    record.kind = RecordKind::instant;
    record.category = Category::other;
    record.name = name.value;
    record.set_bytes(bytes);
    record.start_ns = record.end_ns = at_ns;
  });
}

void Timeline::counter(NameId name, double value, std::int64_t at_ns) noexcept {
  if (!recording()) return;
  rings_->write(rings_->ring(), step(), [&](Record& record) {
    record.kind = RecordKind::counter;
    record.category = Category::other;
    record.name = name.value;
    record.set_value(value);
    record.start_ns = record.end_ns = at_ns;
  });
}

TrackId Timeline::add_track(std::string_view name) {
  if (!enabled()) return {};
  const ThreadRing* ring = rings_->take_slot(name.substr(0, sizeof(recorder::ThreadEntry::name) - 1));
  return {ring != nullptr ? ring->slot : static_cast<std::uint16_t>(recorder::thread_slots)};
}

void Timeline::span_on(TrackId track, Category category, NameId name, const TrainingPlace& launched_in,
                       std::int64_t start_ns, std::int64_t end_ns, std::int64_t launch_ns,
                       std::uint64_t bytes) noexcept {
  const std::int64_t step = launched_in.step;
  if (!enabled() || !is_recorded(step)) return;
  if (track.value >= recorder::thread_slots) return rings_->drop();
  rings_->write(rings_->ring(), step, [&](Record& record) {
    fill_span(record, category, name.value, start_ns, end_ns);
    record.track = track.value;
    if (launched_in.phase) record.set_launched_in(*launched_in.phase);
    record.set_queued_ns(start_ns - launch_ns);
    record.set_bytes(bytes);
  });
}

void Timeline::set_clock(std::span<const RoundTrip> samples) {
  if (!enabled()) return;
  const std::lock_guard lock(clock_mutex_);
  auto& table = rings_->map().clocks().samples;
  const std::vector<RoundTrip> best = best_of_bursts(samples);
  for (std::size_t i = 0; i < table.size(); ++i) {
    // If there are more bursts than the table can hold, keeps the first, the last and some between them.
    const std::size_t from = best.size() <= table.size() ? i : i * (best.size() - 1) / (table.size() - 1);
    if (from >= best.size()) break;
    recorder::ClockSample sample{best[from].send_ns, best[from].reference_ns, best[from].receive_ns, 0};
    sample.check = clock_check(sample);
    table[i] = sample;
  }
}

// A span costs little more than its two clock reads. A function call would add a tenth of that, so
// everything is inlined here.
[[gnu::flatten]] void Span::begin(Timeline& timeline, Category category, const char* name) noexcept {
  timeline_ = &timeline;
  category_ = category;
  name_ = name;
  start_ns_ = 0;
  outer_ = current_span.innermost.load(std::memory_order_relaxed);
  if (timeline.recording()) timeline.begin(*this);
  current_span.category.store(category, std::memory_order_relaxed);
  // After the fields that a signal handler reads.
  current_span.innermost.store(this, std::memory_order_release);
}

[[gnu::flatten]] void Span::end() noexcept {
  if (outer_ != nullptr) current_span.category.store(outer_->category_, std::memory_order_relaxed);
  current_span.innermost.store(outer_, std::memory_order_release);
  if (start_ns_ != 0) timeline_->end(*this, now_ns());
}

void Span::end(const MpiCall& what) noexcept {
  if (!live_ || start_ns_ == 0) return;
  timeline_->end(*this, what, now_ns());
  start_ns_ = 0;
}

}  // namespace farandole
