// farandole submit: makes a batch script for a program, checks it, also with Slurm, and submits it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/launcher.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/launch_folder.h"
#include "farandole/launch/slurm/batch_script.h"
#include "farandole/launch/slurm/submission.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* usage =
    "Usage: farandole submit [OPTION]... [--] PROGRAM [ARGUMENT...]\n\n"
    "Makes a batch script for a program from slurm/train.sbatch, checks it, and submits it. The job is requeued if the\n"
    "program saves a checkpoint and exits with code 75, as farandole train, farandole fit and farandole::Run do before the\n"
    "time limit. The options of train and fit are checked first, and then those of Slurm (sbatch --test-only). The script\n"
    "is kept as RUN/job.sbatch, and the output of the job is in RUN/job.out. A profile may have options of this command\n"
    "and of farandole train.\n\n"
    "Examples:\n"
    "  $ farandole submit -N2 --time 4:00:00 -- farandole train --profile mnist --data DIR --run-dir RUN\n"
    "  $ farandole submit -N2 --run-dir RUN -- ./program ARGUMENT\n"
    "  $ farandole submit -N2 -n8 --run-dir RUN --trace-torch -- python3 train.py\n";

struct Request {
  farandole::BatchRequest batch;
  std::filesystem::path run_dir;
  bool gpu = false;
  bool print = false;
};

using Words = std::vector<std::string>;

// The command that each rank starts. `train` and `fit` alone mean those of Farandole.
Words command_in(const Words& words) {
  if (words.empty())
    throw farandole::UserError(
        "no program to submit; write farandole submit -N2 -- farandole train --profile mnist ..., or -- ./program ...");
  auto command = words;
  if (command.front() == "train" || command.front() == "fit") command.insert(command.begin(), "farandole");
  const auto own = farandole::command_of(command);
  if (own == "run" || own == "submit")
    throw farandole::UserError(
        "the batch script calls farandole run itself; write the program alone behind --");
  if (own == "train") {  // The words of the script's own command.
    command.erase(command.begin(),
                  command.begin() + (fs::path(command.front()).filename() == "farandole" ? 2 : 1));
    command.insert(command.begin(), {"farandole", "train"});
  }
  return command;
}

// What farandole train or farandole fit would refuse is refused now, and not when the job has waited
// for its start.
void check_command(const Words& command) {
  const auto own = farandole::command_of(command);
  const auto folder = farandole::program_folder();
  if (own != "train" && own != "fit") {
    farandole::require_program(command.front());
    return;
  }
  farandole::require_program(folder / ("farandole-" + own));
  Words check = {folder / (own == "train" ? "farandole-config" : "farandole-fit"), "--check"};
  check.insert(check.end(), command.begin() + (fs::path(command.front()).filename() == "farandole" ? 2 : 1),
               command.end());
  const auto answer = farandole::run_command(check, std::chrono::seconds(120));
  if (!answer || answer->exit_code == 0) return;  // It may be that only the nodes can run it.
  if (answer->exit_code != static_cast<int>(farandole::ExitCode::user_error)) return;
  auto text = answer->text.substr(0, answer->text.find_last_not_of('\n') + 1);
  text = text.substr(text.rfind('\n') + 1);
  throw farandole::UserError(text.substr(text.find(": ") + 2));
}

// Gives the command its run directory, which is `run_dir` or the one that the command names. `demanded`: the
// command line has it, and not only a profile or the environment.
void take_run_dir(Request& request, const std::string& run_dir, bool demanded) {
  auto& command = request.batch.command;
  const auto own = farandole::command_of(command);
  const auto find = [&](const std::string& folder) {
    return farandole::find_launched_run(command, folder, "", [](const char*) { return nullptr; }).folder;
  };
  request.run_dir = find("");
  if (!request.run_dir.empty() && !demanded) return;
  if (run_dir.empty())
    throw farandole::UserError(
        own == "train" ? "--run-dir of the training is missing; name the folder for the files of the run"
                       : "--run-dir is missing; name the folder for the files of the job, before --");
  const bool names_it = !request.run_dir.empty();
  request.run_dir = find(run_dir);  // Refuses two different ones.
  if (names_it) return;
  if (own == "train" || own == "fit")
    command.insert(command.end(), {"--run-dir", request.run_dir.string()});
  else
    request.batch.run_dir = request.run_dir;
}

// A name of a file for sbatch, which replaces %j and the like.
std::string as_sbatch_file(const fs::path& file) {
  std::string text;
  for (const char c : file.string()) {
    if (c == '\\')
      throw farandole::UserError(
          file.string() + " contains a backslash, which sbatch does not accept; choose another folder");
    text += c == '%' ? "%%" : std::string(1, c);
  }
  return text;
}

// One task for each GPU of a node: adds up the numbers of sbatch's [TYPE:]NUMBER,….
int gpus_in(const std::string& text) {
  int sum = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    const auto number = farandole::parse_number<int>(part.substr(part.rfind(':') + 1));
    if (!number || *number < 1)
      throw farandole::UserError("--gpus-per-node " + text +
                                 " has no number of GPUs for one task each; give --ntasks-per-node as well");
    sum += *number;
    begin = end + 1;
  }
  return sum;
}

// Returns no value after --help.
std::optional<Request> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Request request;
  std::string run_dir;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.profiles = farandole::profiles_folder();
  parser.foreign.reset();  // Profiles also have options of the training.
  parser.synonyms = {{"np", "ntasks"}, {"ranks", "ntasks"}};
  for (const auto& [name, letter, meaning] : farandole::sbatch_options)
    parser.visible.add_options()((std::string(name) + (*letter == '\0' ? "" : ",") + letter).c_str(),
                                 po::value<std::string>(), meaning);
  parser.visible.add_options()("run-dir", po::value(&run_dir),
                               "folder for the files of the job, if the program does not name its own")(
      "trace-torch", po::bool_switch(),
      "record a program that uses PyTorch in Python, as farandole run does")(
      "torch-backend", po::value<std::string>(), "farandole: as of farandole run")(
      "horovod", po::bool_switch(), "as of farandole run")("print", po::bool_switch(&request.print),
                                                           "print the script instead of submitting the job");
  const int own = parser.own_arguments(argc, argv);
  po::variables_map given;
  if (!parser.parse(own, argv, &given)) return std::nullopt;
  auto& options = request.batch.options;
  for (const auto& option : farandole::sbatch_options)
    if (given.count(option.name) != 0)
      options.emplace_back(option.name, given[option.name].as<std::string>());
  for (const auto* name : {"trace-torch", "horovod"})
    if (given[name].as<bool>()) request.batch.run_options.push_back(std::string("--") + name);
  if (given.count("torch-backend") != 0) {
    farandole::check_torch_backend(given["torch-backend"].as<std::string>());
    request.batch.run_options.push_back("--torch-backend=farandole");
  }
  request.gpu = given.count("gpus-per-node") != 0;
  if (given.count("ntasks") != 0) {  // The script's numbers would contradict it.
    for (const auto* name : {"nodes", "ntasks-per-node"})
      if (given.count(name) == 0) options.emplace_back(name, "");
  } else if (request.gpu && given.count("ntasks-per-node") == 0) {
    options.emplace_back("ntasks-per-node",
                         std::to_string(gpus_in(given["gpus-per-node"].as<std::string>())));
  }
  const int program = own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own;
  auto& command = request.batch.command = command_in({argv + std::min(program, argc), argv + argc});
  if (given.count("profile") != 0 && farandole::command_of(command) == "train") {
    Words profiles;
    for (const auto& name : given["profile"].as<Words>())
      profiles.insert(profiles.end(), {"--profile", name});
    command.insert(command.begin() + 2, profiles.begin(), profiles.end());
  }
  request.batch.programs = farandole::program_folder();
  take_run_dir(request, run_dir, parser.origins["run-dir"] == "--run-dir");
  check_command(command);
  options.emplace_back("output", as_sbatch_file(request.run_dir / "job.out"));
  options.emplace_back("chdir", fs::current_path().string());
  return request;
}

std::string script_of(const Request& request) {
  const auto file = farandole::profiles_folder().parent_path() / "slurm" /
                    (request.gpu ? "train-gpu.sbatch" : "train.sbatch");
  const auto text = farandole::read_whole_file(file);
  if (!text) throw farandole::UserError(file.string() + " is missing; install Farandole again");
  return make_batch_script(*text, request.batch);
}

// Returns what sbatch prints, without the line's end.
std::string sbatch(const std::string& option, const fs::path& script, const char* what) {
  const auto answer = farandole::run_command({"sbatch", option, script.string()}, std::chrono::seconds(120));
  if (!answer)
    throw farandole::UserError(
        "sbatch does not answer or is not in PATH; submit jobs on a login node of a Slurm cluster");
  auto text = answer->text.substr(0, answer->text.find_last_not_of('\n') + 1);
  if (text.starts_with("sbatch: ")) text = text.substr(std::string_view("sbatch: ").size());
  if (answer->exit_code != 0) throw farandole::UserError(fmt::format("{}: {}", what, text));
  return text;
}

int run(int argc, char** argv) {
  const auto request = parse(argc, argv);
  if (!request) return 0;
  const auto text = script_of(*request);
  if (request->print) {
    fmt::print("{}", text);
    return 0;
  }
  farandole::refuse_if_in_use(request->run_dir);
  const farandole::TemporaryFolder folder;
  farandole::write_file_atomically(folder / "job.sbatch", text);
  const auto plan = sbatch("--test-only", folder / "job.sbatch", "Slurm would refuse this job");
  const auto script = request->run_dir / "job.sbatch";
  std::error_code error;
  fs::create_directories(request->run_dir, error);
  if (error)
    throw farandole::UserError(fmt::format("run directory {} cannot be created: {}; choose another --run-dir",
                                           request->run_dir.string(), error.message()));
  farandole::write_file_atomically(script, text);
  auto job = sbatch("--parsable", script, "the job was not submitted");
  job = job.substr(0, job.find(';'));  // The name of the cluster follows.
  farandole::record_submission(request->run_dir, job);
  fmt::print("job            {}\nrun directory  {}\nscript         {}\noutput         {}\n", job,
             request->run_dir.string(), script.string(), (request->run_dir / "job.out").string());
  if (const auto start = plan.find(" to start at "); start != std::string::npos)
    fmt::print("Slurm expects it to start at {}.\n",
               plan.substr(start + std::string_view(" to start at ").size()));
  fmt::print("Follow it with: farandole status {} --watch\n",
             farandole::shell_word(request->run_dir.string()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return farandole::run_main("farandole submit", [&] { return run(argc, argv); });
}
