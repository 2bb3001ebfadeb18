#include "farandole/analyzer/model/launches.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace farandole {
namespace {

// A call of the host that gave work to a device. Work whose launch the trace itself records has its index
// instead of a correlation.
struct Launch {
  std::int64_t correlation = 0;
  std::int64_t time = 0;
  std::uint8_t phase = phase_count;
  std::uint32_t range = NamedSpan::no_range;
};

bool launched_before(const Launch& a, const Launch& b) {
  return a.time < b.time;
}
// The order does not depend on that of the events in the file.
bool begins_before(const NamedSpan& a, const NamedSpan& b) {
  if (a.start != b.start) return a.start < b.start;
  return std::tuple(a.end, a.category, a.launch_is, a.launch) <
         std::tuple(b.end, b.category, b.launch_is, b.launch);
}

// What a thread was doing. Times must not decrease from call to call.
class ThreadPlace {
 public:
  ThreadPlace(const PackedSpans& spans, const PackedNamedSpans& ranges) {
    std::vector<CategorySpan> unpacked;
    spans.unpack(unpacked);
    pieces_ = innermost(std::move(unpacked));
    ranges.unpack(ranges_);
    const auto outer_first = [](const NamedSpan& a, const NamedSpan& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    };
    if (!std::is_sorted(ranges_.begin(), ranges_.end(), outer_first))
      std::stable_sort(ranges_.begin(), ranges_.end(), outer_first);
  }

  // Sets what is unknown and what this thread knows.
  void complete(Launch& launch) {
    while (piece_ < pieces_.size() && pieces_[piece_].end <= launch.time) ++piece_;
    if (launch.phase == phase_count && piece_ < pieces_.size() && pieces_[piece_].start <= launch.time)
      launch.phase = static_cast<std::uint8_t>(phase_of(pieces_[piece_].category));
    for (; range_ < ranges_.size() && ranges_[range_].start <= launch.time; ++range_) open_.push_back(range_);
    while (!open_.empty() && ranges_[open_.back()].end <= launch.time) open_.pop_back();
    if (launch.range == NamedSpan::no_range && !open_.empty()) launch.range = ranges_[open_.back()].name;
  }

 private:
  std::vector<CategorySpan> pieces_;
  std::vector<NamedSpan> ranges_;
  std::vector<std::size_t> open_;  // Ranges around the last time, the innermost last.
  std::size_t piece_ = 0, range_ = 0;
};

// Ordered by correlation.
std::vector<Launch> launches_of(std::map<std::int64_t, CollectedThread>& threads,
                                const CollectedThread* training, const PackedSpans& training_spans) {
  std::vector<Launch> all;
  const auto add = [&](const CollectedThread& thread) {
    const auto begin = static_cast<std::ptrdiff_t>(all.size());
    for (const auto& [correlation, time] : thread.launches) all.push_back({correlation, time});
    return begin;
  };
  const auto complete = [&](std::ptrdiff_t begin, const PackedSpans& spans, const PackedNamedSpans& ranges) {
    if (!std::is_sorted(all.begin() + begin, all.end(), launched_before))
      std::sort(all.begin() + begin, all.end(), launched_before);
    ThreadPlace place(spans, ranges);
    std::for_each(all.begin() + begin, all.end(), [&](Launch& launch) { place.complete(launch); });
  };
  for (const auto& [tid, thread] : threads)
    if (!thread.launches.empty() && &thread != training)
      complete(add(thread), thread.spans.kept(), thread.ranges);
  if (training != nullptr) add(*training);
  if (all.empty()) return all;
  if (training != nullptr) complete(0, training_spans, training->ranges);
  // A call of the runtime may contain one of the driver with the same number. The first one counts.
  std::stable_sort(all.begin(), all.end(),
                   [](const Launch& a, const Launch& b) { return a.correlation < b.correlation; });
  return all;
}

void link(const std::vector<Launch>& launches, std::vector<NamedSpan>& work) {
  std::size_t next = 0;  // Mostly, work has the order of its launches.
  for (auto& span : work) {
    if (span.launch_is != NamedSpan::Launch::correlation) continue;
    if (next >= launches.size() || launches[next].correlation != span.launch ||
        (next > 0 && launches[next - 1].correlation == span.launch))
      next = static_cast<std::size_t>(std::lower_bound(launches.begin(), launches.end(), span.launch,
                                                       [](const Launch& launch, std::int64_t correlation) {
                                                         return launch.correlation < correlation;
                                                       }) -
                                      launches.begin());
    span.launch_is = NamedSpan::Launch::unknown;
    if (next == launches.size() || launches[next].correlation != span.launch) continue;
    const auto& launch = launches[next++];
    span.launch_is = NamedSpan::Launch::time;
    span.launch = launch.time;
    span.range = launch.range;
    if (span.phase == phase_count) span.phase = launch.phase;
  }
}

// Of work whose launch the trace itself records: the ranges of a track that has nothing else.
void add_ranges(const CollectedThread& track, std::vector<NamedSpan>& work) {
  std::vector<Launch> launches;
  for (std::size_t i = 0; i < work.size(); ++i)
    if (work[i].launch_is == NamedSpan::Launch::time && work[i].range == NamedSpan::no_range)
      launches.push_back({static_cast<std::int64_t>(i), work[i].launch});
  std::sort(launches.begin(), launches.end(), launched_before);
  ThreadPlace place(track.spans.kept(), track.ranges);
  for (auto& launch : launches) {
    place.complete(launch);
    work[static_cast<std::size_t>(launch.correlation)].range = launch.range;
  }
}

}  // namespace

std::map<std::int64_t, PackedNamedSpans> linked_gpu_work(std::map<std::int64_t, CollectedThread>& threads,
                                                         const CollectedThread* training,
                                                         const PackedSpans& training_spans) {
  std::map<std::int64_t, std::vector<NamedSpan>> devices;
  for (auto& [tid, thread] : threads) {
    if (thread.gpu.size() == 0) continue;
    auto& work = devices[thread.device];
    const auto middle = static_cast<std::ptrdiff_t>(work.size());
    std::exchange(thread.gpu, {}).unpack(work);
    if (!std::is_sorted(work.begin() + middle, work.end(), begins_before))
      std::stable_sort(work.begin() + middle, work.end(), begins_before);
    std::inplace_merge(work.begin(), work.begin() + middle, work.end(), begins_before);
  }
  std::map<std::int64_t, PackedNamedSpans> result;
  if (devices.empty()) return result;
  const auto launches = launches_of(threads, training, training_spans);
  for (auto& [device, work] : devices) {
    link(launches, work);
    for (const auto& [tid, thread] : threads)
      if (&thread != training && thread.launches.empty() && thread.ranges.size() > 0)
        add_ranges(thread, work);
    auto& packed = result[device];
    for (const auto& span : std::exchange(work, {})) packed.append(span);
    packed.shrink();
  }
  return result;
}

}  // namespace farandole
