// farandole submit: makes a batch script for a training, checks it with Slurm, and submits it.
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
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/launch_folder.h"
#include "farandole/launch/slurm/batch_script.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* usage =
    "Usage: farandole submit [OPTION]... -- train TRAIN-OPTION...\n\n"
    "Makes a batch script for a training from slurm/train.sbatch, checks it with sbatch --test-only, and submits it.\n"
    "The script is kept as RUN/job.sbatch, and the output of the job is in RUN/job.out. A profile may have options of\n"
    "this command and of the training.\n\n"
    "Examples:\n"
    "  $ farandole submit --nodes 2 --time 4:00:00 -- train --profile mnist --data DIR --run-dir RUN\n";

struct Request {
  farandole::BatchRequest batch;
  fs::path run_dir;
  bool gpu = false;
  bool print = false;
};

fs::path run_dir_of(const std::vector<std::string>& training) {
  std::vector<std::string> program = {"farandole", "train"};
  program.insert(program.end(), training.begin(), training.end());
  const auto run = farandole::find_launched_run(program, "", "", [](const char*) { return nullptr; });
  if (run.folder.empty())
    throw farandole::UserError(
        "--run-dir of the training is missing; name the folder for the files of the run on the command line, "
        "because submit does not look for it in profiles, --set and the environment");
  return run.folder;
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
  const int own = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  Request request;
  farandole::OptionParser parser;
  parser.usage = usage;
  parser.profiles = farandole::profiles_folder();
  parser.foreign.reset();  // Profiles also have options of the training.
  for (const auto& [name, meaning] : farandole::sbatch_options)
    parser.visible.add_options()(name, po::value<std::string>(), meaning);
  parser.visible.add_options()("print", po::bool_switch(&request.print),
                               "print the script instead of submitting the job");
  po::variables_map given;
  if (!parser.parse(own, argv, &given)) return std::nullopt;
  for (const auto& [name, meaning] : farandole::sbatch_options)
    if (given.count(name) != 0) request.batch.options.emplace_back(name, given[name].as<std::string>());
  request.gpu = given.count("gpus-per-node") != 0;
  if (request.gpu && given.count("ntasks-per-node") == 0)
    request.batch.options.emplace_back("ntasks-per-node",
                                       std::to_string(gpus_in(given["gpus-per-node"].as<std::string>())));
  if (own + 1 >= argc || std::string_view(argv[own + 1]) != "train")
    throw farandole::UserError(
        "no training to submit; write farandole submit --nodes 2 -- train --profile mnist ...");
  if (given.count("profile") != 0)
    for (const auto& name : given["profile"].as<std::vector<std::string>>())
      request.batch.training.insert(request.batch.training.end(), {"--profile", name});
  request.batch.training.insert(request.batch.training.end(), argv + own + 2, argv + argc);
  request.batch.programs = farandole::program_folder();
  request.run_dir = run_dir_of(request.batch.training);
  request.batch.options.emplace_back("output", as_sbatch_file(request.run_dir / "job.out"));
  request.batch.options.emplace_back("chdir", fs::current_path().string());
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
