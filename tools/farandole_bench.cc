// farandole bench: runs one rank of a benchmark that compares Farandole with alternatives.
#include <cstdio>
#include <fmt/format.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/bench/commands.h"

int main(int argc, char** argv) {
  using namespace farandole;
  const std::string what = argc > 1 ? argv[1] : "";
  return run_main("farandole bench", [&] {
    if (print_version(argc, argv)) return 0;
    if (what == "allreduce") return allreduce_command(argc, argv);
    if (what == "step") return step_command(argc, argv);
    if (what == "timeline") return timeline_command(argc, argv);
    if (what == "checkpoint") return checkpoint_command(argc, argv);
    if (what == "--help" || what == "-h") {
      fmt::print(
          "Usage: farandole bench BENCHMARK [OPTION]...\n"
          "  or:  farandole bench BENCHMARK --help\n\n"
          "Measures Farandole and compares it with alternatives.\n\n"
          "Benchmarks:\n"
          "  allreduce   collectives by size, compared with MPI and with the memory bandwidth limit\n"
          "  step        training steps with and without communication\n"
          "  timeline    cost of recording a span, compared with two clock reads; speed of the merge\n"
          "  checkpoint  pause, writing and reading of a checkpoint, compared with memcpy, dd and cat\n");
      return 0;
    }
    throw UserError(what.empty()
                        ? "no benchmark given; use allreduce, step, timeline or checkpoint"
                        : "unknown benchmark '" + what + "'; use allreduce, step, timeline or checkpoint");
  });
}
