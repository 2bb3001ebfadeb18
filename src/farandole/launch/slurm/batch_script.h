// Makes a batch script for one training from a script of slurm/ (farandole submit). Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace farandole {

// Options of farandole submit that sbatch has under the same name, with their meanings.
inline constexpr std::pair<const char*, const char*> sbatch_options[] = {
    {"nodes", "number of nodes"},
    {"ntasks-per-node", "ranks on each node"},
    {"cpus-per-task", "cores of each rank"},
    {"gpus-per-node",
     "GPUs of each node; the job then gets one rank for each GPU, from slurm/train-gpu.sbatch"},
    {"mem", "memory of each node, for example 64G"},
    {"time", "time limit, for example 4:00:00"},
    {"partition", "partition"},
    {"account", "account"},
    {"qos", "quality of service"},
    {"job-name", "name of the job"},
};

struct BatchRequest {
  // Options of sbatch with their values: {"nodes", "2"}. They replace the lines of the script that set
  // the same option.
  std::vector<std::pair<std::string, std::string>> options;
  std::filesystem::path programs;     // Folder of Farandole's programs.
  std::vector<std::string> training;  // Arguments of `farandole train`; they take the place of "$@".
};

// `script`: the text of slurm/train.sbatch or slurm/train-gpu.sbatch.
// Throws: Error if the script has no line #SBATCH or no "$@".
std::string make_batch_script(const std::string& script, const BatchRequest& request);

// A word of a shell's command line; in quotes if it has other characters than those of names and paths.
std::string shell_word(const std::string& word);

}  // namespace farandole
