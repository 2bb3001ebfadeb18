// farandole train: one rank of a training run.
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "farandole/base/program_folder.h"
#include "farandole/train/training_run.h"

int main(int argc, char** argv) {
  using namespace farandole;
  TrainOptions options;
  auto parser = train_option_parser(options, profiles_folder());
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h")
      return parser.parse(argc, argv), 0;
  return run_session("farandole train", argc, argv, [&](Session& session) {
    session.together([&] {
      parser.parse(argc, argv);
      options.check();
    });
    return train(session, options, argc, argv);
  });
}
