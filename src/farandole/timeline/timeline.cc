#include "farandole/timeline/timeline.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/timeline/launch_history.h"
#include "farandole/timeline/page_keeper.h"
#include "farandole/timeline/recorder_format.h"
#include "farandole/timeline/recorder_map.h"

namespace farandole {
namespace {

// Where a thread writes next; used by the one thread that holds the slot.
struct alignas(64) Ring {
  Record* next = nullptr;
  Record* chunk_end = nullptr;
  std::uint64_t head = 0;
  recorder::ThreadEntry* entry = nullptr;
  std::uint32_t chunks = 0;
  std::uint32_t present = 0;  // index in entry->chunks of the chunk in use
  std::uint16_t slot = 0;
  bool growing = true;
};

// The ring of the timeline that this thread used last; null: there is no slot for this thread.
struct RingCache {
  std::uint64_t instance = 0;
  Ring* ring = nullptr;
};
constinit thread_local RingCache ring_cache;

// The ids of the names that this thread used last, by the literal's address.
struct NameCacheEntry {
  const char* literal = nullptr;
  const char* text = nullptr;  // the interned copy: another name may stand at the address now
  std::uint64_t instance = 0;
  std::uint32_t id = 0;
};
constinit thread_local std::array<NameCacheEntry, 64> name_cache;

// The span around this thread's last MPI call: calls in different spans are never one record.
constinit thread_local const Span* polled_in = nullptr;

std::uint64_t next_instance() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

recorder::OpenEvent opened(NameId name, NameId operation, const Collective& what, std::int64_t start_ns) {
  return {start_ns,
          name.value,
          operation.value,
          what.sequence,
          what.communicator,
          RecordKind::collective,
          Category::communication};
}

bool is_main_thread() {
  return ::syscall(SYS_gettid) == ::getpid();
}

}  // namespace

struct Timeline::Impl {
  explicit Impl(std::unique_ptr<RecorderMap> recorder_map) : map(std::move(recorder_map)) {
    for (std::size_t i = 0; i < recorder::thread_slots; ++i) {
      rings[i].entry = &map->thread(i);
      rings[i].slot = static_cast<std::uint16_t>(i);
    }
    intern("(unnamed)");
    pages.emplace(*map);
  }

  const std::uint64_t instance = next_instance();
  const std::unique_ptr<RecorderMap> map;
  std::array<Ring, recorder::thread_slots> rings;
  std::optional<PageKeeper> pages;

  std::mutex mutex;                                  // of what follows, and of the file's names
  std::array<bool, recorder::thread_slots> taken{};  // by a thread that lives
  std::unordered_map<std::string_view, std::uint32_t> ids;
  std::deque<std::string> texts;  // what the keys of `ids` and the name caches point to

  std::uint32_t intern(std::string_view name);
  const char* text_of(std::uint32_t id);

  Ring* ring() { return ring_cache.instance == instance ? ring_cache.ring : find_ring(); }
  Ring* find_ring();
  Ring* take_slot(std::string_view name);
  void give_back(Ring* ring);
  void set_name(recorder::ThreadEntry& entry, std::string_view name);
  void start_chunk(Ring& ring);
  void drop() { std::atomic_ref(map->header().dropped).fetch_add(1, std::memory_order_relaxed); }

  // Calls fill(record) on the thread's next record and publishes it.
  template <typename Fill>
  void write(std::int64_t step, Fill&& fill);
  // Makes the thread's last record last until end_ns where `poll` goes on with what it is: a call without
  // success, and the same again at once.
  bool extends_last(const Record& poll);

  std::weak_ptr<Impl> self;
};

namespace {

// The rings that this thread holds, of all timelines; gives them back when the thread ends.
template <typename Impl>
struct HeldRings {
  struct Held {
    std::uint64_t instance;
    std::weak_ptr<Impl> timeline;
    Ring* ring;
  };
  std::vector<Held> all;

  ~HeldRings() {
    for (const Held& held : all)
      if (const auto timeline = held.timeline.lock(); timeline && held.ring != nullptr)
        timeline->give_back(held.ring);
    ring_cache = {};
  }
  static HeldRings& of_this_thread() {
    thread_local HeldRings held;
    return held;
  }
};

}  // namespace

std::uint32_t Timeline::Impl::intern(std::string_view name) {
  const std::lock_guard lock(mutex);
  if (const auto found = ids.find(name); found != ids.end()) return found->second;
  recorder::Header& header = map->header();
  const std::string_view kept = name.substr(0, recorder::longest_name);
  const auto length = static_cast<std::uint16_t>(kept.size());
  if (header.names_used + sizeof length + length > map->geometry.names_bytes) return 0;
  char* at = map->names() + header.names_used;
  std::memcpy(at, &length, sizeof length);
  kept.copy(at + sizeof length, kept.size());
  std::atomic_ref(header.names_used)
      .store(header.names_used + sizeof length + length, std::memory_order_release);
  const auto id = static_cast<std::uint32_t>(texts.size());
  ids.emplace(texts.emplace_back(name), id);
  return id;
}

const char* Timeline::Impl::text_of(std::uint32_t id) {
  const std::lock_guard lock(mutex);
  return texts[id].c_str();
}

Ring* Timeline::Impl::find_ring() {
  auto& held = HeldRings<Impl>::of_this_thread().all;
  const auto found =
      std::find_if(held.begin(), held.end(), [this](const auto& one) { return one.instance == instance; });
  Ring* ring = found != held.end() ? found->ring : take_slot("");
  if (found == held.end()) {
    std::erase_if(held, [](const auto& one) { return one.timeline.expired(); });
    held.push_back({instance, self, ring});
  }
  ring_cache = {instance, ring};
  return ring;
}

// A slot that an ended thread of the same name has left, or else a new one. Slot 0 is for the thread that
// trains: one of that name, or else the process's first.
Ring* Timeline::Impl::take_slot(std::string_view name) {
  const std::lock_guard lock(mutex);
  const auto take = [&](Ring& ring) {
    taken[ring.slot] = true;
    if (ring.chunks == 0 && ring.slot > 0) pages->prepare(ring.slot);
    if (std::exchange(ring.entry->in_use, 1u) == 0) set_name(*ring.entry, name);
    return &ring;
  };
  for (Ring& ring : rings)
    if (!taken[ring.slot] && ring.entry->in_use != 0 && name == ring.entry->name.data()) return take(ring);
  const bool trains = name == "training" || (name.empty() && is_main_thread());
  if (trains && rings[0].entry->in_use == 0) return take(rings[0]);
  for (std::size_t i = 1; i < rings.size(); ++i)
    if (rings[i].entry->in_use == 0) return take(rings[i]);
  return rings[0].entry->in_use == 0 ? take(rings[0]) : nullptr;
}

void Timeline::Impl::give_back(Ring* ring) {
  const std::lock_guard lock(mutex);
  taken[ring->slot] = false;
}

void Timeline::Impl::set_name(recorder::ThreadEntry& entry, std::string_view name) {
  entry.name.fill('\0');
  name.copy(entry.name.data(), entry.name.size() - 1);
}

void Timeline::Impl::start_chunk(Ring& ring) {
  recorder::ThreadEntry& entry = *ring.entry;
  if (ring.growing) {
    std::uint32_t chunk = ring.slot;
    if (ring.chunks > 0) {
      const std::atomic_ref next_chunk(map->header().next_chunk);
      chunk = next_chunk.load(std::memory_order_relaxed);
      while (chunk < recorder::chunk_count &&
             !next_chunk.compare_exchange_weak(chunk, chunk + 1, std::memory_order_relaxed)) {
      }
    }
    ring.growing = chunk < recorder::chunk_count;
    if (ring.growing) {
      entry.chunks[ring.chunks] = static_cast<std::uint16_t>(chunk);
      ring.present = ring.chunks++;
      std::atomic_ref(entry.chunks_used).store(ring.chunks, std::memory_order_release);
    }
  }
  if (!ring.growing) ring.present = (ring.present + 1) % ring.chunks;
  ring.next = map->chunk(entry.chunks[ring.present]);
  ring.chunk_end = ring.next + map->geometry.chunk_records;
  pages->chunk_started();
}

template <typename Fill>
void Timeline::Impl::write(std::int64_t step, Fill&& fill) {
  Ring* const ring = this->ring();
  if (ring == nullptr) return drop();
  if (ring->next == ring->chunk_end) start_chunk(*ring);
  Record& record = *ring->next++;  // in place: a copy would wait for its stores
  record = Record{};
  record.step = step;
  record.track = ring->slot;
  fill(record);
  record.check = record_check(record, ring->head);
  std::atomic_ref(ring->entry->head).store(++ring->head, std::memory_order_release);
}

// In place, so that nothing waits to be written where the process ends. Another process that reads the record
// at this moment finds it damaged.
bool Timeline::Impl::extends_last(const Record& poll) {
  constexpr std::int64_t at_once_ns = 2'000;
  Ring* const ring = this->ring();
  if (ring == nullptr || ring->next == nullptr) return false;
  if (ring->next == map->chunk(ring->entry->chunks[ring->present])) return false;
  Record& last = ring->next[-1];
  if (last.details != poll.details || last.name != poll.name || last.step != poll.step ||
      last.kind != poll.kind || poll.start_ns - last.end_ns > at_once_ns)
    return false;
  Record longer = last;
  longer.end_ns = poll.end_ns;
  longer.payload += poll.payload;
  longer.check = record_check(longer, ring->head - 1);
  last = longer;
  return true;
}

Timeline::Timeline() = default;

Timeline::Timeline(const TimelineOptions& options) : options_(options) {
  if (options.file.empty() || options.window.off()) return;
  auto map = RecorderMap::create(options);
  if (map == nullptr) return;
  impl_ = std::make_shared<Impl>(std::move(map));
  impl_->self = impl_;
}

Timeline::~Timeline() = default;

std::filesystem::path Timeline::file() const {
  return enabled() ? impl_->map->path : std::filesystem::path();
}

NameId Timeline::intern(std::string_view name) {
  return {enabled() ? impl_->intern(name) : 0};
}

void Timeline::state(std::string_view fact, std::string_view value) {
  intern(std::string(recorder::fact_mark).append(fact).append("=").append(value));
}

void Timeline::name_thread(std::string_view name) {
  if (!enabled()) return;
  name = name.substr(0, sizeof(recorder::ThreadEntry::name) - 1);
  auto& held = HeldRings<Impl>::of_this_thread().all;
  const auto is_ours = [&](const auto& one) { return one.instance == impl_->instance; };
  if (const auto found = std::find_if(held.begin(), held.end(), is_ours); found != held.end()) {
    if (found->ring != nullptr) impl_->set_name(*found->ring->entry, name);
  } else {
    held.push_back({impl_->instance, impl_, impl_->take_slot(name)});
  }
}

void Timeline::set_step(std::int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  if (enabled()) std::atomic_ref(impl_->map->header().step).store(step, std::memory_order_relaxed);
}

void Timeline::span(Category category, NameId name, std::int64_t start_ns, std::int64_t end_ns) noexcept {
  if (!recording()) return;
  impl_->write(step(), [&](Record& record) {
    record.kind = RecordKind::span;
    record.category = category;
    record.name = name.value;
    record.start_ns = start_ns;
    record.end_ns = end_ns;
  });
}

std::uint32_t Timeline::id_of(const char* name) noexcept {
  NameCacheEntry& cached = name_cache[(reinterpret_cast<std::uintptr_t>(name) * 0x9E3779B97F4A7C15u) >> 58];
  if (cached.literal != name || cached.instance != impl_->instance || std::strcmp(cached.text, name) != 0) {
    const std::uint32_t id = impl_->intern(name);
    cached = {name, impl_->text_of(id), impl_->instance, id};
  }
  return cached.id;
}

void Timeline::span(Category category, const char* name, std::int64_t start_ns,
                    std::int64_t end_ns) noexcept {
  if (recording()) span(category, NameId{id_of(name)}, start_ns, end_ns);
}

void Timeline::begin(Span& span) noexcept {
  span.name_id_ = id_of(span.name_);
  Ring* const ring = impl_->ring();
  span.start_ns_ = now_ns();
  if (ring == &impl_->rings[0]) tell_phase(&span, span.start_ns_);
  if (ring != nullptr)
    ring->entry->open = {span.start_ns_, span.name_id_, 0, 0, 0, RecordKind::span, span.category_};
}

void Timeline::end(const Span& ended, std::int64_t end_ns) noexcept {
  span(ended.category_, NameId{ended.name_id_}, ended.start_ns_, end_ns);
  Ring* const ring = impl_->ring();
  if (ring == &impl_->rings[0]) tell_phase(ended.outer_, end_ns);
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
  record.details = what.details;
  record.payload = what.bytes;
  record.operation = what.ranks;
  record.sequence = static_cast<std::uint32_t>(what.tag);
  record.peer = static_cast<std::uint32_t>(what.peer);
  record.start_ns = ended.start_ns_;
  record.end_ns = end_ns;
  if (!what.has(MpiCall::has_polls) || polled_in != ended.outer_ || !impl_->extends_last(record))
    impl_->write(record.step, [&](Record& next) {
      record.track = next.track;
      next = record;
    });
  polled_in = ended.outer_;
  if (Ring* const ring = impl_->ring(); ring != nullptr) reopen(ring->entry->open, ended.outer_);
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
  if (Ring* const ring = impl_->ring(); ring != nullptr)
    ring->entry->open = opened(name, operation, what, start_ns);
}

void Timeline::begin_collective_on(TrackId track, NameId name, NameId operation, const Collective& what,
                                   std::int64_t start_ns) noexcept {
  if (recording() && track.value < recorder::thread_slots)
    impl_->rings[track.value].entry->open = opened(name, operation, what, start_ns);
}

void Timeline::collective(const TrackId* track, NameId name, NameId operation, const Collective& what,
                          std::int64_t start_ns, std::int64_t end_ns) noexcept {
  if (!recording()) return;
  if (track != nullptr && track->value >= recorder::thread_slots) return impl_->drop();
  impl_->write(step(), [&](Record& record) {
    record.kind = RecordKind::collective;
    record.category = Category::communication;
    record.name = name.value;
    record.operation = operation.value;
    record.sequence = what.sequence;
    record.communicator = what.communicator;
    record.payload = what.bytes;
    record.start_ns = start_ns;
    record.end_ns = end_ns;
    if (track != nullptr) record.track = track->value;
  });
  if (track != nullptr)
    impl_->rings[track->value].entry->open = {};
  else if (Ring* const ring = impl_->ring(); ring != nullptr)
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
  impl_->write(step(), [&](Record& record) {
    record.kind = RecordKind::instant;
    record.category = Category::other;
    record.name = name.value;
    record.payload = bytes;
    record.start_ns = record.end_ns = at_ns;
  });
}

void Timeline::counter(NameId name, double value, std::int64_t at_ns) noexcept {
  if (!recording()) return;
  impl_->write(step(), [&](Record& record) {
    record.kind = RecordKind::counter;
    record.category = Category::other;
    record.name = name.value;
    record.payload = std::bit_cast<std::uint64_t>(value);
    record.start_ns = record.end_ns = at_ns;
  });
}

TrackId Timeline::add_track(std::string_view name) {
  if (!enabled()) return {};
  const Ring* ring = impl_->take_slot(name.substr(0, sizeof(recorder::ThreadEntry::name) - 1));
  return {ring != nullptr ? ring->slot : static_cast<std::uint16_t>(recorder::thread_slots)};
}

void Timeline::span_on(TrackId track, Category category, NameId name, const TrainingPlace& launched_in,
                       std::int64_t start_ns, std::int64_t end_ns) noexcept {
  const std::int64_t step = launched_in.step;
  if (!enabled() || (step >= 0 && (step < options_.window.first || step > options_.window.last))) return;
  if (track.value >= recorder::thread_slots) return impl_->drop();
  impl_->write(step, [&](Record& record) {
    record.kind = RecordKind::span;
    record.category = category;
    record.name = name.value;
    record.track = track.value;
    if (launched_in.phase)
      record.communicator = static_cast<std::uint16_t>(1 + static_cast<int>(*launched_in.phase));
    record.start_ns = start_ns;
    record.end_ns = end_ns;
  });
}

void Timeline::set_clock(std::span<const RoundTrip> samples) {
  if (!enabled()) return;
  const std::lock_guard lock(impl_->mutex);
  auto& table = impl_->map->clocks().samples;
  const std::vector<RoundTrip> best = best_of_bursts(samples);
  for (std::size_t i = 0; i < table.size(); ++i) {
    // More bursts than there is room for: the first, the last, and some in between.
    const std::size_t from = best.size() <= table.size() ? i : i * (best.size() - 1) / (table.size() - 1);
    if (from >= best.size()) break;
    recorder::ClockSample sample{best[from].send_ns, best[from].reference_ns, best[from].receive_ns, 0};
    sample.check = clock_check(sample);
    table[i] = sample;
  }
}

void Span::begin(Timeline& timeline, Category category, const char* name) noexcept {
  timeline_ = &timeline;
  category_ = category;
  name_ = name;
  start_ns_ = 0;
  outer_ = current_span.innermost.load(std::memory_order_relaxed);
  if (timeline.recording()) timeline.begin(*this);
  current_span.category.store(category, std::memory_order_relaxed);
  current_span.innermost.store(this, std::memory_order_release);  // after what a signal handler reads
}

void Span::end() noexcept {
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
