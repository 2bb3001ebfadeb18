// The recorder's part of farandole/capi.h.
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/text/json.h"
#include "farandole/capi.h"
#include "farandole/capi/process_job.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/job/run/metrics_log.h"
#include "farandole/job/run/run_directory.h"

namespace farandole::capi {
namespace {

// Names that live as long as the process. Readers take no lock.
class Names {
 public:
  static constexpr std::size_t most = 8192;

  int number(const char* name) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = numbers_.try_emplace(name, count_);
    if (!is_new) return known->second;
    if (static_cast<std::size_t>(count_) == most) {
      numbers_.erase(known);
      return 0;
    }
    texts_[static_cast<std::size_t>(count_)].store(known->first.c_str(), std::memory_order_release);
    return count_++;
  }
  const char* text(int number) const {
    const auto* const text = static_cast<std::size_t>(number) < most
                                 ? texts_[static_cast<std::size_t>(number)].load(std::memory_order_acquire)
                                 : nullptr;
    return text == nullptr ? "other" : text;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, int> numbers_{{"other", 0}};
  std::array<std::atomic<const char*>, most> texts_{};
  int count_ = 1;
};

Names& names() {
  static auto* const all = new Names;  // Threads may record until the process ends.
  return *all;
}

// The open spans of a thread, which must not move.
class OpenSpans {
 public:
  OpenSpans() = default;
  ~OpenSpans() {
    while (depth_ > 0) end();
  }
  OpenSpans(const OpenSpans&) = delete;
  OpenSpans& operator=(const OpenSpans&) = delete;

  void begin(Timeline& timeline, Category category, const char* name) {
    if (depth_ < most) ::new (at(depth_)) Span(timeline, category, name);
    ++depth_;
  }
  void end() {
    if (depth_ == 0) return;
    --depth_;
    if (depth_ < most) static_cast<Span*>(at(depth_))->~Span();
  }

 private:
  static constexpr std::size_t most = 64;
  void* at(std::size_t depth) { return memory_.data() + depth * sizeof(Span); }

  alignas(Span) std::array<std::byte, most * sizeof(Span)> memory_;
  std::size_t depth_ = 0;
};

thread_local OpenSpans open_spans;

Category category_of_number(int number) {
  return static_cast<std::size_t>(number) < category_names.size() ? static_cast<Category>(number)
                                                                  : Category::other;
}

Timeline* timeline() {
  auto* const own = running();
  return own == nullptr ? nullptr : &own->job.timeline();
}

// Collectives of another library over some ranks.
class Observed {
 public:
  Observed(Job& job, std::uint16_t number, int size, std::uint32_t first_call)
      : timeline_(job.timeline()),
        number_(number),
        next_(first_call),
        entry_(job.watched_calls() == nullptr ? nullptr : job.watched_calls()->add(number, size)) {}

  std::int64_t enter(const char* operation, const char* name, std::size_t bytes, bool waits) {
    const std::lock_guard lock(mutex_);
    const auto now = now_ns();
    Call call{timeline_.intern(name), timeline_.intern(operation), {next_, number_, bytes}, now, {}};
    if (!waits) call.track = free_track();
    if (call.track)
      timeline_.begin_collective_on(*call.track, call.name, call.operation, call.what, now);
    else
      timeline_.begin_collective(call.name, call.operation, call.what, now);
    if (entry_ != nullptr) {
      entry_->set_blocked(waits ? own_thread() : 0);
      entry_->enter(next_, names().text(names().number(operation)), name, bytes, now);
    }
    calls_.emplace(next_, call);
    return next_++;
  }

  void leave(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(static_cast<std::uint32_t>(number));
    if (found == calls_.end()) return;
    const auto call = found->second;
    calls_.erase(found);
    if (calls_.empty() && entry_ != nullptr) entry_->leave();
    if (call.track) {
      timeline_.collective_on(*call.track, call.name, call.operation, call.what, call.start_ns, now_ns());
      busy_.erase(call.track->value);
    } else {
      timeline_.collective(call.name, call.operation, call.what, call.start_ns, now_ns());
    }
  }

 private:
  struct Call {
    NameId name, operation;
    Collective what;
    std::int64_t start_ns;
    std::optional<TrackId> track;  // none: the thread that waits
  };

  // Calls that overlap cannot be shown on one track.
  TrackId free_track() {
    for (const auto track : tracks_)
      if (busy_.insert(track.value).second) return track;
    if (tracks_.size() == most_tracks) return tracks_.back();
    tracks_.push_back(timeline_.add_track("collectives"));
    busy_.insert(tracks_.back().value);
    return tracks_.back();
  }

  static constexpr std::size_t most_tracks = 8;
  Timeline& timeline_;
  const std::uint16_t number_;
  std::uint32_t next_;
  const std::shared_ptr<CollectiveEntry> entry_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Call> calls_;
  std::vector<TrackId> tracks_;
  std::set<std::uint16_t> busy_;
};

Json parse_object(const char* text) {
  auto object = try_parse_json(text == nullptr ? "" : text);
  if (!object.is_object()) throw UserError("the values are no JSON object; pass a text like {\"loss\": 0.5}");
  return object;
}

RunFacts facts_of(Job& job) {
  RunFacts facts;
  facts.ranks = job.layout().size;
  facts.hosts = job.layout().hosts;
  facts.device = "cpu";
  facts.cores = job.layout().node_cores;
  facts.versions = library_versions();
  if (job.is_guest())
    facts.versions.erase("mpi");
  else
    facts.between_nodes = job.world().between_nodes();
  return facts;
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;
using capi::attempt;

int fdl_run_facts(const char* facts) {
  return attempt([&] {
    auto& own = capi::need_job();
    const auto given = capi::parse_object(facts);
    if (own.job.layout().rank != 0 || own.job.recorded().empty()) return;
    if (own.directory)
      return own.directory->add([&](RunFacts& known) { take_run_facts(given, "the facts", known); });
    own.directory.emplace(own.job.recorded(), own.job.earlier_progress());
    auto known = capi::facts_of(own.job);
    take_run_facts(given, "the facts", known);
    own.directory->started(std::move(known), 0);
  });
}

int fdl_log(int64_t step, int64_t epoch, const char* values) {
  return attempt([&] {
    auto& own = capi::need_job();
    MetricsLog::Values line{step, epoch, {}};
    const auto given = capi::parse_object(values);
    for (const auto& [name, value] : given.items()) {
      if (!value.is_number() && !value.is_null())
        throw UserError("the value of " + name +
                        " is no number; log numbers, or null for one that is not finite");
      line.values.emplace_back(name, value.is_null() ? std::nan("") : value.get<double>());
    }
    if (own.job.layout().rank != 0 || own.job.recorded().empty()) return;
    // Where the program continues is not known here, so no line is dropped.
    if (!own.metrics)
      own.metrics.emplace(own.job.recorded() / "metrics.jsonl", std::numeric_limits<std::int64_t>::max());
    own.metrics->write(line);
  });
}

int64_t fdl_now() {
  return now_ns();
}
int fdl_recording() {
  auto* const timeline = capi::timeline();
  return timeline != nullptr && timeline->recording() ? 1 : 0;
}
int fdl_intern(const char* name) {
  return capi::names().number(name == nullptr ? "" : name);
}

void fdl_begin(int category, int name) {
  if (auto* const timeline = capi::timeline(); timeline != nullptr)
    capi::open_spans.begin(*timeline, capi::category_of_number(category), capi::names().text(name));
}
void fdl_end() {
  capi::open_spans.end();
}
void fdl_span(int category, int name, int64_t start, int64_t end) {
  if (auto* const timeline = capi::timeline(); timeline != nullptr)
    timeline->span(capi::category_of_number(category), capi::names().text(name), start, end);
}
void fdl_set_step(int64_t step) {
  if (auto* const own = capi::running(); own != nullptr) own->job.program_sets_step(step);
}
void fdl_begin_first_step() {
  if (auto* const own = capi::running(); own != nullptr) own->job.first_step_begins();
}
int fdl_end_step(const void* optimizer, int64_t end) {
  auto* const own = capi::running();
  if (own == nullptr) return 0;
  own->job.watch_if_met();
  const int counted = own->job.optimizer_ended_step(optimizer, end);
  for (int i = 0; i < counted; ++i) own->job.calls().count_step();
  return counted;
}
void fdl_forget_optimizer(const void* optimizer) {
  if (auto* const own = capi::running(); own != nullptr) own->job.optimizer_is_gone(optimizer);
}
void fdl_instant(int name) {
  if (auto* const timeline = capi::timeline(); timeline != nullptr)
    timeline->instant(timeline->intern(capi::names().text(name)));
}
void fdl_counter(int name, double value) {
  if (auto* const timeline = capi::timeline(); timeline != nullptr)
    timeline->counter(timeline->intern(capi::names().text(name)), value);
}
void fdl_fact(const char* fact, const char* value) {
  auto* const timeline = capi::timeline();
  if (timeline != nullptr && fact != nullptr && value != nullptr) timeline->set_metadata(fact, value);
}

int fdl_observe(const int* ranks, int count, int number, int64_t first_call, void** observed) {
  return attempt([&] {
    auto& job = capi::need_job().job;
    constexpr int first = CollectiveRegistry::first_observed,
                  numbers = CollectiveRegistry::session_setup - first;
    *observed = new capi::Observed(job, static_cast<std::uint16_t>(first + number % numbers),
                                   ranks == nullptr ? job.layout().size : count,
                                   static_cast<std::uint32_t>(first_call));
  });
}
void fdl_observe_end(void* observed) {
  delete static_cast<capi::Observed*>(observed);
}
int64_t fdl_enter(void* observed, const char* operation, const char* name, size_t bytes, int waits) {
  auto* const own = capi::running();
  if (own == nullptr) return -1;
  own->job.watch_if_met();
  return static_cast<capi::Observed*>(observed)->enter(operation, name, bytes, waits != 0);
}
void fdl_leave(void* observed, int64_t call) {
  if (capi::running() != nullptr) static_cast<capi::Observed*>(observed)->leave(call);
}
