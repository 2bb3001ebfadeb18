#include "farandole/trainer/config_command.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/process/program.h"
#include "farandole/trainer/train_options.h"

namespace farandole {
namespace {

int show(int argc, const char* const* argv) {
  TrainOptions options;
  auto parser = train_option_parser(options, profiles_folder());
  parser.usage =
      "Usage: farandole config [TRAIN-OPTION]...\n\n"
      "Shows which value each option of farandole train has with these options, and where the value comes from: the\n"
      "command line, --set, the environment (FARANDOLE_LOG_STEPS for --log-steps), a profile, the site file, or the\n"
      "default. Wrong values are refused as farandole train refuses them.\n\n"
      "Examples:\n"
      "  $ farandole config --profile mnist --batch 16\n";
  boost::program_options::variables_map given;
  if (!parser.parse(argc, argv, &given)) return 0;
  if (!options.data.path.empty() && !options.run_dir.empty()) options.check();
  std::size_t widest = 6, longest = 5;
  for (const auto& name : parser.names()) {
    widest = std::max(widest, name.size() + 2);
    longest = std::max(longest, option_text(given[name]).size());
  }
  fmt::print("{:<{}}  {:<{}}  from\n", "option", widest, "value", longest);
  for (const auto& name : parser.names()) {
    const auto origin = parser.origins.find(name);
    fmt::print("{:<{}}  {:<{}}  {}\n", "--" + name, widest, option_text(given[name]), longest,
               origin != parser.origins.end() ? origin->second
               : given.count(name) != 0       ? "default"
                                              : "-");
  }
  return 0;
}

}  // namespace

int config_command(int argc, const char* const* argv) {
  return run_main("farandole config", [&] { return show(argc, argv); });
}

}  // namespace farandole
