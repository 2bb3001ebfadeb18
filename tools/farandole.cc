// farandole COMMAND: runs the program farandole-COMMAND in the same folder. No command loads libraries that
// only other commands need.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"

namespace {

namespace fs = std::filesystem;

constexpr std::string_view program_prefix = "farandole-";

// In the order in which users need them.
constexpr std::pair<std::string_view, std::string_view> descriptions[] = {
    {"run", "start a program on several ranks"},
    {"record", "record a PyTorch program that any launcher starts"},
    {"python", "run a Python script of Horovod or Spark with Farandole"},
    {"train", "train a model on the ranks that 'farandole run' has started"},
    {"new", "write a small project of your own that trains at once"},
    {"config", "show the options of a training, and where each value comes from"},
    {"submit", "submit a program to Slurm"},
    {"status", "say what a run is doing: step, rate, time left, checkpoint"},
    {"analyze", "report where the time of a run went"},
    {"doctor", "report why a run hung, crashed or refused to start; check an installation"},
    {"timeline", "merge, slice, salvage or export the timeline of a run"},
    {"checkpoint", "list, show, verify, compare or export checkpoints"},
    {"fit", "train a model file on a table"},
    {"transform", "apply a trained model to a table"},
    {"evaluate", "measure a trained model on a table"},
    {"runs", "list recorded runs; list the runs of a store, show one, or name the best one"},
    {"model", "show what a model file takes, returns and calls"},
    {"table", "show the columns of a table, or split it at random"},
    {"bench", "measure collectives, steps, checkpoints and the recorder"},
};

std::vector<std::string> commands() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(farandole::program_folder())) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(program_prefix) && entry.is_regular_file() &&
        ::access(entry.path().c_str(), X_OK) == 0)
      names.push_back(name.substr(program_prefix.size()));
  }
  const auto order = [](const std::string& name) {
    const auto* found = std::find_if(std::begin(descriptions), std::end(descriptions),
                                     [&](const auto& description) { return description.first == name; });
    return std::pair(found - std::begin(descriptions), name);
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return names;
}

void print_help(std::FILE* stream) {
  fmt::print(stream,
             "Usage: farandole COMMAND [ARGUMENT...]\n"
             "  or:  farandole COMMAND --help\n"
             "  or:  farandole --version\n\n"
             "Trains LibTorch models on several ranks and reports where the time of a run went.\n\n"
             "Commands:\n");
  for (const auto& name : commands()) {
    std::string_view line;
    for (const auto& [known, description] : descriptions)
      if (known == name) line = description;
    fmt::print(stream, "  {:<11} {}\n", name, line);
  }
}

[[noreturn]] void become(const std::string& command, std::vector<char*> arguments) {
  const auto program = (farandole::program_folder() / (std::string(program_prefix) + command)).string();
  arguments.insert(arguments.begin(), const_cast<char*>(program.c_str()));
  arguments.push_back(nullptr);
  const bool is_name = !command.empty() && command.find('/') == std::string::npos;
  if (is_name) ::execv(program.c_str(), arguments.data());
  if (is_name && errno != ENOENT)
    throw farandole::Error("cannot run " + program + ": " + std::strerror(errno));
  for (const auto& [known, description] : descriptions)
    if (known == command) {
      const bool needs_libtorch = known == "train" || known == "config" || known == "bench" ||
                                  known == "fit" || known == "transform" || known == "evaluate" ||
                                  known == "runs" || known == "model";
      throw farandole::UserError(
          fmt::format("farandole {} is not built. {}", command,
                      farandole::how_to_build(std::string(program_prefix) + command, needs_libtorch)));
    }
  const auto nearest = farandole::nearest_name(command, commands());
  throw farandole::UserError("no command '" + command + "'" +
                             (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
                             (nearest.empty() ? "; farandole --help lists the commands" : ""));
}

int run(int argc, char** argv) {
  std::vector<char*> arguments(argv + 1, argv + argc);
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (farandole::print_version(argc, argv)) return 0;
  if (arguments.empty() || first == "-h" || first == "--help" || (first == "help" && arguments.size() == 1)) {
    print_help(arguments.empty() ? stderr : stdout);
    return arguments.empty() ? static_cast<int>(farandole::ExitCode::user_error) : 0;
  }
  static char help[] = "--help";
  if (first == "help") become(arguments[1], {help});
  if (first.starts_with('-'))
    throw farandole::UserError("unknown option " + first +
                               " before the command; farandole --help lists the commands");
  // Without list, show or best, the recorded runs and not those of a store.
  const std::string second = arguments.size() > 1 ? arguments[1] : "";
  if (first == "runs" && (second.empty() || (fs::is_directory(second) && second != "list" &&
                                             second != "show" && second != "best")))
    become("status", {arguments.begin() + 1, arguments.end()});
  become(first, {arguments.begin() + 1, arguments.end()});
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole", [&] { return run(argc, argv); });
}
