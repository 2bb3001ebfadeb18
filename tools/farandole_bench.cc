// farandole bench: measures what Farandole exists for beside its rivals. One rank's main.
#include <cstdio>
#include <fmt/format.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/bench/allreduce_command.h"

int main(int argc, char** argv) {
  using namespace farandole;
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "allreduce") return allreduce_command(argc, argv);
    if (what == "--help" || what == "-h") {
      fmt::print("usage: farandole bench allreduce [OPTION]…      farandole bench allreduce --help\n");
      return 0;
    }
    throw UserError(what.empty() ? "name what to measure: allreduce"
                                 : "no benchmark '" + what + "'; there is allreduce");
  } catch (const Error& error) {
    fmt::print(stderr, "farandole bench: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
