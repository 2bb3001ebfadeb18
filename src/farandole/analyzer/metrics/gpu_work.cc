#include "farandole/analyzer/metrics/gpu_work.h"

#include <algorithm>
#include <limits>

namespace farandole {
namespace {

std::int64_t common(Interval a, Interval b) {
  return std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.start, b.start));
}

IdleCause cause_of(Phase phase) {
  switch (phase) {
    case Phase::data:
      return IdleCause::data;
    case Phase::wait:
      return IdleCause::collective;
    case Phase::checkpoint:
      return IdleCause::disk;
    default:
      return IdleCause::host;
  }
}

class IdleTime {
 public:
  IdleTime(const std::vector<CategorySpan>& pieces, Interval window) : pieces_(pieces), window_(window) {}

  // Times do not decrease from call to call.
  void add(Interval gap, IdleCause cause) { times_[static_cast<std::size_t>(cause)] += common(gap, window_); }
  // Nothing was queued: what the training thread did is the cause. `rest`: it did nothing of these.
  void add_without_queue(Interval gap, IdleCause rest) {
    gap = {std::max(gap.start, window_.start), std::min(gap.end, window_.end)};
    if (gap.start >= gap.end) return;
    while (next_ < pieces_.size() && pieces_[next_].end <= gap.start) ++next_;
    auto left = gap.end - gap.start;
    for (auto at = next_; at < pieces_.size() && pieces_[at].start < gap.end; ++at) {
      const auto cause = cause_of(phase_of(pieces_[at].category));
      if (cause == IdleCause::host) continue;
      const auto part = common(gap, {pieces_[at].start, pieces_[at].end});
      times_[static_cast<std::size_t>(cause)] += part;
      left -= part;
    }
    times_[static_cast<std::size_t>(rest)] += left;
  }
  const IdleTimes& times() const { return times_; }

 private:
  const std::vector<CategorySpan>& pieces_;
  const Interval window_;
  std::size_t next_ = 0;
  IdleTimes times_{};
};

enum class CopyKind : std::uint8_t { to_device, to_host, on_device, peer, other, fill };
constexpr std::array<std::string_view, 6> copy_kinds = {
    "host to device", "device to host", "on the device", "device to device", "of unknown kind", "memory set"};

// By the names of CUPTI as Farandole and the profilers of PyTorch and XLA write them, and of ROCm.
CopyKind kind_of_copy(std::string_view name) {
  const auto has = [&](auto... parts) { return ((name.find(parts) != std::string_view::npos) || ...); };
  if (has("emset", "set memory", "fill", "Fill", "MEMORY_SET")) return CopyKind::fill;
  if (has("HtoD", "H2D", "host to device", "HostToDevice", "HOST_TO_DEVICE")) return CopyKind::to_device;
  if (has("DtoH", "D2H", "device to host", "DeviceToHost", "DEVICE_TO_HOST")) return CopyKind::to_host;
  if (has("PtoP", "P2P", "device to device", "PeerToPeer")) return CopyKind::peer;
  if (has("DtoD", "D2D", "on the device", "DeviceToDevice", "DEVICE_TO_DEVICE")) return CopyKind::on_device;
  return CopyKind::other;
}

}  // namespace

IdleTimes idle_times(const std::vector<NamedSpan>& work, const std::vector<CategorySpan>& pieces,
                     Interval window) {
  IdleTime idle(pieces, window);
  auto free_since = std::numeric_limits<std::int64_t>::min() / 2;
  for (const auto& next : work) {
    if (next.start > free_since) {
      const Interval gap{free_since, next.start};
      const bool is_short = gap.end - gap.start <= queue_gap_ns;
      if (next.launch_is == NamedSpan::Launch::time ? next.launch > free_since : !is_short)
        idle.add_without_queue(gap, IdleCause::host);
      else if (is_short)
        idle.add(gap, IdleCause::queue);
      else
        idle.add(gap, next.category == Category::communication ? IdleCause::collective : IdleCause::other);
    }
    free_since = std::max(free_since, next.end);
    if (free_since >= window.end) break;
  }
  idle.add_without_queue({free_since, window.end}, IdleCause::other);
  return idle.times();
}

GpuWorkTotals::Total& GpuWorkTotals::total_of(std::uint32_t name, bool copies) {
  auto& place = places_[2 * std::size_t{name} + (copies ? 1 : 0)];
  if (place == 0) {
    totals_.push_back({.name = name, .copies = copies});
    place = static_cast<std::uint32_t>(totals_.size());
  }
  return totals_[place - 1];
}

void GpuWorkTotals::add(const std::vector<NamedSpan>& work, Interval window) {
  constexpr std::size_t most_ranges = 1 << 18;
  places_.resize(2 * names_.size());
  for (const auto& span : work) {
    const auto ns = static_cast<double>(common({span.start, span.end}, window));
    const bool begins = span.start >= window.start && span.start < window.end;
    if (ns <= 0 && !begins) continue;
    auto& total = total_of(span.name, span.category == Category::gpu_memcpy);
    total.calls += begins ? 1 : 0;
    total.ns += ns;
    total.communicates |= span.category == Category::communication;
    total.by_phase[span.phase] += ns;
    if (span.bytes > 0 && span.end > span.start) {
      const auto part = ns / static_cast<double>(span.end - span.start);
      total.bytes += part * static_cast<double>(span.bytes);
      total.bytes_ns += ns;
    }
    if (span.range == NamedSpan::no_range) continue;
    if (total.last_range == nullptr || total.last_range->first != span.range) {
      auto found = total.by_range.find(span.range);
      if (found == total.by_range.end()) {
        if (ranges_ >= most_ranges) continue;
        ++ranges_;
        found = total.by_range.emplace(span.range, 0).first;
      }
      total.last_range = &*found;
    }
    total.last_range->second += ns;
  }
}

std::vector<KernelRow> GpuWorkTotals::kernels() const {
  std::vector<KernelRow> rows;
  double all = 0;
  for (const auto& total : totals_) {
    if (total.copies) continue;
    all += total.ns;
    auto& row = rows.emplace_back();
    row.name = names_[total.name];
    row.communicates = total.communicates;
    row.calls = total.calls;
    row.ns = total.ns;
    std::copy_n(total.by_phase.begin(), phase_count, row.by_phase.begin());
    for (const auto& [range, ns] : total.by_range) row.by_range.emplace_back(names_[range], ns);
    std::sort(row.by_range.begin(), row.by_range.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
  }
  for (auto& row : rows) row.share = all > 0 ? row.ns / all : 0;
  std::sort(rows.begin(), rows.end(), [](const KernelRow& a, const KernelRow& b) {
    return a.ns != b.ns ? a.ns > b.ns : a.name < b.name;
  });
  return rows;
}

std::vector<CopyRow> GpuWorkTotals::copies() const {
  std::array<CopyRow, copy_kinds.size()> by_kind;
  for (const auto& total : totals_) {
    if (!total.copies) continue;
    auto& row = by_kind[static_cast<std::size_t>(kind_of_copy(names_[total.name]))];
    row.calls += total.calls;
    row.ns += total.ns;
    row.bytes += total.bytes;
    row.bytes_ns += total.bytes_ns;
  }
  std::vector<CopyRow> rows;
  for (std::size_t kind = 0; kind < by_kind.size(); ++kind) {
    if (by_kind[kind].calls == 0 && by_kind[kind].ns <= 0) continue;
    by_kind[kind].kind = copy_kinds[kind];
    rows.push_back(std::move(by_kind[kind]));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const CopyRow& a, const CopyRow& b) { return a.ns > b.ns; });
  return rows;
}

}  // namespace farandole
