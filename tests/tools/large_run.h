// Makes traces of runs of any size from one step of a real small run, with known answers.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/chrome_trace/trace_writer.h"

namespace farandole::testing {

// The parts of one step of one rank. Units: nanoseconds.
struct StepTemplate {
  struct Bucket {
    std::int64_t offset = 0;  // of its arrival, from the beginning of backward
    std::int64_t transfer = 0;
    std::uint64_t bytes = 0;
  };
  std::int64_t data = 1'000'000, forward = 20'000'000, backward = 40'000'000, optimizer = 5'000'000;
  std::vector<Bucket> buckets = {{20'000'000, 6'000'000, 4'000'000}, {38'000'000, 9'000'000, 2'000'000}};
};

// Of the real run's first rank, the step of median length: the durations of its phases, and the
// times of its buckets.
class TemplateReader : public TraceVisitor {
 public:
  void process(const TraceProcess& event) override {
    if (event.rank == 0) pid_ = event.pid;
  }
  void span(const TraceSpan& event) override {
    if (event.pid == pid_ && event.step)
      spans_.push_back({event.category, event.start_ns, event.duration_ns, *event.step,
                        event.collective ? event.collective->bytes : 0, event.collective.has_value()});
  }
  StepTemplate result() const {
    std::vector<Span> steps;
    for (const auto& span : spans_)
      if (span.category == Category::step) steps.push_back(span);
    if (steps.empty()) throw UserError("the trace has no step of rank 0 to make a run of");
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end(),
                     [](const Span& a, const Span& b) { return a.duration < b.duration; });
    StepTemplate step{0, 0, 0, 0, {}};
    std::int64_t backward_start = middle->start;
    for (const auto& span : spans_) {
      if (span.step != middle->step) continue;
      if (span.category == Category::backward) backward_start = span.start;
      if (span.category == Category::data) step.data += span.duration;
      if (span.category == Category::forward) step.forward += span.duration;
      if (span.category == Category::backward) step.backward += span.duration;
      if (span.category == Category::optimizer) step.optimizer += span.duration;
    }
    for (const auto& span : spans_)
      if (span.step == middle->step && span.is_collective)
        step.buckets.push_back({std::clamp<std::int64_t>(span.start - backward_start, 0, step.backward),
                                std::max<std::int64_t>(span.duration / 2, 1000), span.bytes});
    return step;
  }

 private:
  struct Span {
    Category category;
    std::int64_t start, duration, step;
    std::uint64_t bytes;
    bool is_collective;
  };
  std::int64_t pid_ = 1;
  std::vector<Span> spans_;
};

struct LargeRun {
  StepTemplate step;
  int ranks = 8;
  int steps = 30;
  int events = 60;  // a rank and step, at least
  std::optional<int> slow_rank;
  std::int64_t slow_ns = 0;  // longer backward of slow_rank, in every step
  double slow_node = 1;      // factor of forward and backward of the last ranks_per_node ranks
  int ranks_per_node = 4;
  std::optional<int> pausing_rank;
  std::int64_t pause_ns = 0;  // of pausing_rank's forward, in the middle step alone
  std::optional<int> data_rank;
  std::int64_t data_ns = 0;         // longer data of data_rank, in every step
  std::int64_t noise_ns = 100'000;  // forward takes up to that much more, another time on each rank and step

  int seed = 0;  // of the noise

  // The answers for steps [first, steps).
  struct Truth {
    std::int64_t window = 0;
    std::vector<std::int64_t> compute, communication, overlap, waiting;  // by rank
    std::vector<std::vector<std::int64_t>>
        lateness;  // by step from `first` on, by rank: of the latest arrival
  };

  Truth write(const std::filesystem::path& run, int first) const {
    std::filesystem::create_directories(run);
    std::ofstream(run / "run.json") << nlohmann::json{
        {"ranks", ranks}, {"global_batch", 32 * ranks}, {"device", "cpu"}, {"program", "a made-up run"}};
    const auto times = plan();
    const std::vector<std::int64_t> residuals(static_cast<std::size_t>(ranks), 500);
    TraceWriter trace(run / "timeline.json.gz", {ranks, residuals});
    for (int rank = 0; rank < ranks; ++rank) write_rank(trace, rank, times);
    trace.finish();
    return truth_of(times, first);
  }

 private:
  struct RankStep {
    std::int64_t forward = 0, backward = 0, wait = 0;  // when each begins; data begins with the step
    std::vector<std::int64_t> arrivals;
  };
  struct Step {
    std::int64_t start = 0, optimizer = 0, end = 0;  // on all ranks
    std::vector<std::int64_t> ends;                  // by bucket
    std::vector<RankStep> ranks;
  };

  std::int64_t noise(int rank, int s) const {
    std::uint64_t z = static_cast<std::uint64_t>(seed) * 0xd1342543de82ef95 +
                      static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15 +
                      static_cast<std::uint64_t>(s) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return noise_ns > 0 ? static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(noise_ns))
                        : 0;
  }

  std::vector<Step> plan() const {
    std::vector<Step> all;
    std::int64_t now = 1'000'000;
    for (int s = 0; s < steps; ++s) {
      Step one;
      one.start = now;
      one.ranks.resize(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) plan_compute(one, r, s);
      one.optimizer = plan_buckets(one);
      one.end = one.optimizer + step.optimizer;
      now = one.end + 10'000;
      all.push_back(std::move(one));
    }
    return all;
  }

  void plan_compute(Step& one, int r, int s) const {
    auto& rank = one.ranks[static_cast<std::size_t>(r)];
    const double factor = r >= ranks - ranks_per_node ? slow_node : 1;
    const auto scaled = [&](std::int64_t ns) {
      return static_cast<std::int64_t>(static_cast<double>(ns) * factor);
    };
    rank.forward = one.start + step.data + (data_rank == r ? data_ns : 0);
    rank.backward = rank.forward + scaled(step.forward) + noise(r, s);
    if (pausing_rank == r && s == steps / 2) rank.backward += pause_ns;
    const auto extra = slow_rank == r ? slow_ns : 0;
    for (const auto& bucket : step.buckets)
      rank.arrivals.push_back(rank.backward + scaled(bucket.offset) + extra);
    rank.wait = rank.backward + scaled(step.backward) + extra;
  }

  // The collectives run one after the other, as on a communication thread. Returns when the last collective
  // and every backward pass have ended.
  std::int64_t plan_buckets(Step& one) const {
    std::int64_t end = 0;
    for (std::size_t b = 0; b < step.buckets.size(); ++b) {
      std::int64_t last = 0;
      for (auto& rank : one.ranks) {
        rank.arrivals[b] = std::max(rank.arrivals[b], end);
        last = std::max(last, rank.arrivals[b]);
      }
      end = last + step.buckets[b].transfer;
      one.ends.push_back(end);
    }
    for (const auto& rank : one.ranks) end = std::max(end, rank.wait);
    return end;
  }

  void write_rank(TraceWriter& trace, int rank, const std::vector<Step>& times) const {
    trace.process(rank, "node" + std::to_string(rank / ranks_per_node));
    trace.thread({rank, 0}, "training");
    trace.thread({rank, 1}, "reductions");
    const int own = 6 + static_cast<int>(step.buckets.size());
    for (int s = 0; s < steps; ++s) {
      const auto& one = times[static_cast<std::size_t>(s)];
      const auto& times_of_rank = one.ranks[static_cast<std::size_t>(rank)];
      const TraceWriter::Place place{rank, 0};
      trace.span(place, {one.start, one.end}, {Category::step, "step", s});
      trace.span(place, {one.start, times_of_rank.forward}, {Category::data, "data", s});
      write_layers(trace, rank, s, Category::forward, {times_of_rank.forward, times_of_rank.backward},
                   (events - own) / 2);
      write_layers(trace, rank, s, Category::backward, {times_of_rank.backward, times_of_rank.wait},
                   events - own - (events - own) / 2);
      trace.span(place, {times_of_rank.wait, one.optimizer}, {Category::wait, "wait for gradients", s});
      trace.span(place, {one.optimizer, one.end}, {Category::optimizer, "update", s});
    }
    for (int s = 0; s < steps; ++s) {
      const auto& one = times[static_cast<std::size_t>(s)];
      for (std::size_t b = 0; b < step.buckets.size(); ++b)
        trace.collective({rank, 1}, "bucket " + std::to_string(b), "allreduce",
                         {static_cast<std::uint32_t>(static_cast<std::size_t>(s) * step.buckets.size() + b),
                          0, step.buckets[b].bytes},
                         s, {one.ranks[static_cast<std::size_t>(rank)].arrivals[b], one.ends[b]});
    }
  }

  // A phase with its layers inside, every second one as an annotation.
  void write_layers(TraceWriter& trace, int rank, int s, Category phase, TraceWriter::Interval when,
                    int layers) const {
    trace.span({rank, 0}, when, {phase, name_of(phase), s});
    const auto length = (when.end_ns - when.start_ns) / std::max(layers, 1);
    for (int layer = 0; layer < layers; ++layer) {
      const auto start = when.start_ns + layer * length;
      const auto name = "layer " + std::to_string(layer);
      trace.span({rank, 0}, {start, start + length}, {layer % 2 == 0 ? phase : Category::other, name, s});
    }
  }

  Truth truth_of(const std::vector<Step>& times, int first) const {
    Truth truth;
    const auto n = static_cast<std::size_t>(ranks);
    truth.compute = truth.communication = truth.overlap = truth.waiting = std::vector<std::int64_t>(n);
    truth.window = times.back().end - times[static_cast<std::size_t>(first)].start;
    for (auto s = static_cast<std::size_t>(first); s < times.size(); ++s) {
      const auto& one = times[s];
      truth.lateness.emplace_back(n, 0);
      for (std::size_t r = 0; r < n; ++r)
        truth.compute[r] += one.ranks[r].wait - one.ranks[r].forward + step.optimizer;
      for (std::size_t b = 0; b < step.buckets.size(); ++b) {
        const auto last = one.ends[b] - step.buckets[b].transfer;
        auto earliest = INT64_MAX;
        for (const auto& rank : one.ranks) earliest = std::min(earliest, rank.arrivals[b]);
        for (std::size_t r = 0; r < n; ++r) {
          const auto arrival = one.ranks[r].arrivals[b];
          truth.communication[r] += one.ends[b] - arrival;
          truth.waiting[r] += last - arrival;
          truth.overlap[r] += std::max<std::int64_t>(0, std::min(one.ends[b], one.ranks[r].wait) - arrival);
          truth.lateness.back()[r] = std::max(truth.lateness.back()[r], arrival - earliest);
        }
      }
    }
    return truth;
  }
};

}  // namespace farandole::testing
