// What the GPUs of a run did by name, and why they did nothing. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/model/packed_events.h"
#include "farandole/analyzer/model/phases.h"

namespace farandole {

// A kernel by its whole name, in the window, over all ranks.
struct KernelRow {
  std::string name;
  bool communicates = false;
  std::uint64_t calls = 0;  // Those that begin in the window.
  double ns = 0;
  double share = 0;                            // Of the time of all kernels.
  std::array<double, phase_count> by_phase{};  // ns; less than the sum if the phase of some is unknown.
  std::vector<std::pair<std::string, double>> by_range{};  // ns; most time first. Empty: not recorded.
};

// Copies of one kind, or fills of memory.
struct CopyRow {
  std::string kind;  // "host to device", …
  std::uint64_t calls = 0;
  double ns = 0;
  double bytes = 0;     // Of the copies whose bytes are known.
  double bytes_ns = 0;  // And their time.
};

// The parts of the time in which a GPU neither computes nor copies, named as in Holistic Trace Analysis.
enum class IdleCause : std::uint8_t {
  host,        // The next work was launched after the GPU was free.
  data,        // So it was, and the training thread fetched data,
  collective,  // waited for a collective, or the next work is a queued collective
  disk,        // or wrote or read a checkpoint.
  queue,       // The next work was queued and began soon.
  other
};
inline constexpr std::size_t idle_cause_count = 6;
inline constexpr std::array<std::string_view, idle_cause_count> idle_cause_names = {
    "host wait", "data", "collective", "disk", "kernel wait", "other"};
using IdleTimes = std::array<std::int64_t, idle_cause_count>;  // nanoseconds

// A GPU begins queued work at most this long after it has ended other work. On an H100, each of 14,000
// kernels of a training that was bound by the GPU began within 10 µs. If a trace does not record launches,
// work that begins later counts as launched late.
inline constexpr std::int64_t queue_gap_ns = 10'000;

// Divides the time of `window` in which none of `work`, the work of one GPU ordered by start, runs. `pieces`
// are those of the training thread (innermost()).
IdleTimes idle_times(const std::vector<NamedSpan>& work, const std::vector<CategorySpan>& pieces,
                     Interval window);

// Adds up the work of ranks by name.
class GpuWorkTotals {
 public:
  // `names` must outlive this.
  explicit GpuWorkTotals(const std::vector<std::string>& names) : names_(names) {}

  void add(const std::vector<NamedSpan>& work, Interval window);
  // Most time first.
  std::vector<KernelRow> kernels() const;
  std::vector<CopyRow> copies() const;

 private:
  struct Total {
    std::uint32_t name = 0;
    bool copies = false, communicates = false;
    std::uint64_t calls = 0;
    double ns = 0, bytes = 0, bytes_ns = 0;
    std::array<double, phase_count + 1> by_phase{};
    std::map<std::uint32_t, double> by_range{};
    std::pair<const std::uint32_t, double>* last_range = nullptr;
  };
  Total& total_of(std::uint32_t name, bool copies);

  const std::vector<std::string>& names_;
  std::deque<Total> totals_;           // Of names that occur.
  std::vector<std::uint32_t> places_;  // By name, of kernels and of copies; 0: none, else behind the total.
  std::size_t ranges_ = 0;             // Entries of by_range, whose number is limited.
};

}  // namespace farandole
