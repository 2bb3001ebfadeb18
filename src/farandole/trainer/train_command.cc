#include "farandole/trainer/train_command.h"

#include <csignal>
#include <poll.h>
#include <string_view>

#include "farandole/base/program_folder.h"
#include "farandole/launch/child_process.h"
#include "farandole/trainer/training_run.h"

namespace farandole {

int train_command(int argc, const char* const* argv) {
  TrainOptions options;
  auto parser = train_option_parser(options, profiles_folder());
  for (int i = 1; i < argc; ++i)
    if (const std::string_view word = argv[i]; word == "--help" || word == "-h")
      return parser.parse(argc, argv), 0;
  // Slurm's --signal=USR1 before a time limit or a preemption. Blocked before any thread is made, so that all
  // inherit it.
  const auto signals = signal_descriptor({SIGUSR1});
  ::signal(SIGUSR2, SIG_IGN);  // until the session takes it, which asks for a trace
  const auto stop_requested = [&] {
    pollfd poll{signals.get(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0;
  };
  return run_session("farandole train", argc, argv, [&](Session& session) {
    session.together([&] {
      parser.parse(argc, argv);
      options.check();
    });
    return train(session, options, argc, argv, stop_requested);
  });
}

}  // namespace farandole
