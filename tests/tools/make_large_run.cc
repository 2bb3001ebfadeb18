// Writes the run directory of a synthetic large run made from one step of a real small run:
// make_large_run OUTPUT RANKS STEPS EVENTS [TRACE]. EVENTS is the number of events per rank and step.
// Rank RANKS/3 is 5 ms late.
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <iostream>

#include "tools/large_run.h"

int main(int argc, char** argv) try {
  if (argc < 5) {
    std::cerr << "make_large_run OUTPUT RANKS STEPS EVENTS [TRACE]\n";
    return 64;
  }
  farandole::testing::LargeRun run;
  run.ranks = std::atoi(argv[2]);
  run.steps = std::atoi(argv[3]);
  run.events = std::atoi(argv[4]);
  run.slow_rank = run.ranks / 3;
  run.slow_ns = 5'000'000;
  if (argc > 5) {
    farandole::testing::TemplateReader reader;
    farandole::read_trace(argv[5], reader);
    run.step = reader.result();
  }
  const auto truth = run.write(argv[1], 5);
  double overlap = 0;
  double communication = 0;
  for (std::size_t i = 0; i < truth.overlap.size(); ++i) {
    overlap += static_cast<double>(truth.overlap[i]);
    communication += static_cast<double>(truth.communication[i]);
  }
  fmt::print("window of steps 5 to {}: {:.6f} s, overlap {:.6f}, rank {} late in each step\n", run.steps,
             static_cast<double>(truth.window) * 1e-9, overlap / communication, *run.slow_rank);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "make_large_run: " << error.what() << "\n";
  return 1;
}
