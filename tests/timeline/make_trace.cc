// Writes the merged trace of a synthetic run: make_trace OUTPUT [RANKS [STEPS [RUN]]]. Keeps its small
// recorders in RUN/recorder. Used to test viewers and to measure the merge.
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <iostream>

#include "timeline/synthetic_run.h"

#include "farandole/base/files/temporary_folder.h"

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "make_trace OUTPUT [RANKS [STEPS [RUN]]]\n";
    return 64;
  }
  farandole::SyntheticRun run;
  if (argc > 2) run.ranks = std::atoi(argv[2]);
  if (argc > 3) run.steps = std::atoi(argv[3]);
  run.recorder_bytes = std::size_t{64} << 20;
  const farandole::TemporaryFolder folder;
  const bool keep = argc > 4;
  const auto place = keep ? std::filesystem::path(argv[4]) / "recorder" : folder.path();
  if (keep) run.recorder_bytes = std::size_t{2} << 20;
  for (int rank = 0; rank < run.ranks; ++rank) run.record(place, rank);
  const auto start_ns = farandole::now_ns();
  const farandole::MergeResult result = run.merge(place, argv[1]);
  const double seconds = farandole::seconds_since(start_ns);
  fmt::print("{} events, {} flows, {} clipped, {} overwritten in {:.3f} s: {:.0f} events/s\n", result.events,
             result.flows, result.clipped, result.overwritten, seconds,
             static_cast<double>(result.events) / seconds);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "make_trace: " << error.what() << "\n";
  return 1;
}
