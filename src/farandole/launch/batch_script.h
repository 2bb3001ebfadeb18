// Makes a batch script for one training from a script of slurm/ (farandole submit). Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace farandole {

struct BatchRequest {
  // Options of sbatch with their values: {"nodes", "2"}. They replace the lines of the script that set the same option.
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
