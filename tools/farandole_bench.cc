// farandole bench: measures what Farandole exists for beside its rivals. One rank's main.
#include <cstdio>
#include <fmt/format.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/bench/commands.h"

int main(int argc, char** argv) {
  using namespace farandole;
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "allreduce") return allreduce_command(argc, argv);
    if (what == "step") return step_command(argc, argv);
    if (what == "timeline") return timeline_command(argc, argv);
    if (what == "analyze") return analyze_command(argc, argv);
    if (what == "--help" || what == "-h") {
      fmt::print(
          "farandole bench allreduce|step|timeline|analyze [OPTION]…      farandole bench allreduce "
          "--help\n\n"
          "  allreduce   our collectives against MPI's and the memory's limit, by size\n"
          "  step        training steps with communication and without\n"
          "  timeline    a span beside its two clock reads, and the merge\n"
          "  analyze     a trace's way to the verdict beside simdjson and zlib\n");
      return 0;
    }
    throw UserError(what.empty()
                        ? "name what to measure: allreduce, step, timeline or analyze"
                        : "no benchmark '" + what + "'; there are allreduce, step, timeline and analyze");
  } catch (const Error& error) {
    fmt::print(stderr, "farandole bench: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
