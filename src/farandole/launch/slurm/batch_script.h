// Makes a batch script for one command from a script of slurm/ (farandole submit). Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace farandole {

// Options of farandole submit that sbatch has under the same name and letter, with their meanings.
struct SbatchOption {
  const char *name, *letter, *meaning;  // An empty letter: there is none.
};
inline constexpr SbatchOption sbatch_options[] = {
    {"nodes", "N", "number of nodes"},
    {"ntasks", "n", "number of ranks on all nodes"},
    {"ntasks-per-node", "", "ranks on each node"},
    {"cpus-per-task", "c", "cores of each rank"},
    {"gpus-per-node", "",
     "GPUs of each node; the job then gets one rank for each GPU, from slurm/train-gpu.sbatch"},
    {"mem", "", "memory of each node, for example 64G"},
    {"time", "t", "time limit, for example 4:00:00"},
    {"partition", "p", "partition"},
    {"account", "A", "account"},
    {"qos", "q", "quality of service"},
    {"job-name", "J", "name of the job"},
};

struct BatchRequest {
  // Options of sbatch with their values: {"nodes", "2"}. They replace the lines of the script that set the
  // same option. An empty value only removes these lines.
  std::vector<std::pair<std::string, std::string>> options;
  std::filesystem::path programs;    // Folder of Farandole's programs.
  std::filesystem::path run_dir;     // For a program that does not name its own; empty: the command names it.
  std::vector<std::string> command;  // What each rank starts; it takes the place of `farandole train "$@"`.
  std::vector<std::string> run_options = {};  // Of farandole run: --trace-torch.
};

// `script`: the text of slurm/train.sbatch or slurm/train-gpu.sbatch.
// Throws: Error if the script has no line #SBATCH or does not start `farandole train "$@"`.
std::string make_batch_script(const std::string& script, const BatchRequest& request);

// A word of a shell's command line; in quotes if it has other characters than those of names and paths.
std::string shell_word(const std::string& word);

}  // namespace farandole
