// Records a synthetic run of several ranks with the real recorder. Each rank has its own clock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

struct SyntheticRun {
  int ranks = 3;
  int steps = 20;
  int buckets = 3;
  std::size_t recorder_bytes = std::size_t{4} << 20;
  bool clocks_measured = true;

  std::filesystem::path file(const std::filesystem::path& folder, int rank) const {
    return folder / ("rank-000" + std::to_string(rank) + ".ftl");
  }
  // The difference between the rank's clock and rank 0's clock.
  static std::int64_t clock_ahead_ns(int rank) {
    return rank * 7'000'000'123LL - (rank % 2) * 20'000'000'000LL;
  }
  static constexpr std::int64_t start_ns = 50'000'000'000;
  static constexpr std::int64_t step_ns = 10'000'000;
  static std::int64_t lateness_ns(int rank, int step) { return (rank * 7 + step * 3) % 5 * 100'000; }

  // Records the file of one rank as a training thread, a communication thread and a GPU's
  // stream would write it.
  void record(const std::filesystem::path& folder, int rank) const {
    TimelineOptions options{
        .file = file(folder, rank), .recorder_bytes = recorder_bytes, .rank = rank, .world_size = ranks};
    options.host = "node" + std::to_string(rank);  // each host has its own clock
    Timeline timeline(options);
    timeline.name_thread("training");
    const TrackId communication = timeline.add_track("GPU \"0\" stream\\7 \xff\n");
    for (int step = 0; step < steps; ++step) {
      timeline.set_step(step);
      record_step(timeline, communication, rank, step);
    }
    if (rank > 0 && clocks_measured) timeline.set_clock(round_trips(rank));
    timeline.set_step(-1);
    timeline.instant(timeline.intern("end \"of\" \xc3\xa9\x80run\t"),
                     start_ns + clock_ahead_ns(rank) + steps * step_ns);
  }

  void record_step(Timeline& timeline, TrackId gpu, int rank, int step) const {
    const std::int64_t t = start_ns + clock_ahead_ns(rank) + step * step_ns;
    const std::int64_t late = lateness_ns(rank, step);
    const auto span = [&](Category category, const char* name, std::int64_t from, std::int64_t to) {
      timeline.span(category, name, t + from, t + to);
    };
    span(Category::data, "data", 0, 500'000);  // starts with the step, which is recorded last
    span(Category::forward, "layer 1", 500'000, 700'001);
    span(Category::forward, "layer 2", 700'001, 2'000'000);
    span(Category::forward, "forward", 500'000, 2'000'000);
    span(Category::other, "nothing", 2'000'000, 2'000'000);
    span(Category::backward, "backward", 2'000'000, 5'000'000 + late);
    const NameId allreduce = timeline.intern("allreduce");
    for (int bucket = 0; bucket < buckets; ++bucket) {
      const std::int64_t end = 5'500'000 + bucket * 600'000;  // on all ranks; the last rank arrived before
      const std::int64_t from = end - 500'000 + late;
      timeline.collective(timeline.intern("bucket " + std::to_string(bucket)), allreduce,
                          {static_cast<std::uint32_t>(step * buckets + bucket), 0, 1 << 20}, t + from,
                          t + end);
    }
    span(Category::wait, "overlaps its parent's end", 8'900'000, 9'100'000);
    span(Category::step, "step", 0, 9'000'000);
    timeline.span_on(gpu, Category::gpu_kernel, timeline.intern("gemm"), {step, Category::forward},
                     t + 600'000, t + 4'000'000);
    timeline.counter(timeline.intern("CPU %"), 100.0 + step / 3.0, t);
    timeline.counter(timeline.intern("memory MiB"), step == 5 ? 0.0 / 0.0 : 512, t);
  }

  static std::vector<RoundTrip> round_trips(int rank) {
    std::vector<RoundTrip> trips;
    for (const std::int64_t at : {start_ns, start_ns + 60'000'000'000})
      trips.push_back({at + clock_ahead_ns(rank), at + 1000, at + clock_ahead_ns(rank) + 2000});
    return trips;
  }
  ClockModel clock(int rank) const { return rank == 0 ? ClockModel() : ClockModel::fit(round_trips(rank)); }

  MergeResult merge(const std::filesystem::path& folder, const std::filesystem::path& output,
                    const MergeOptions& options = {}) const {
    std::vector<RankTimeline> timelines;
    for (int rank = ranks - 1; rank >= 0; --rank)
      timelines.push_back({open_source(file(folder, rank)), clock(rank), true});
    return merge_timelines(std::move(timelines), output, options);
  }
};

}  // namespace farandole
