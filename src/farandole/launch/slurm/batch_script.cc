#include "farandole/launch/slurm/batch_script.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <sstream>
#include <string_view>

#include <boost/algorithm/string/replace.hpp>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

// "nodes" of "#SBATCH --nodes=2" and of "##SBATCH --nodes=2"; empty for other lines.
std::string option_of(const std::string& line) {
  const auto start = line.find("#SBATCH --");
  if (start != 0 && !(start == 1 && line[0] == '#')) return "";
  const auto name = line.substr(start + std::string_view("#SBATCH --").size());
  return name.substr(0, name.find_first_of("= "));
}

// A line break would begin a line of its own, which Slurm reads as another option or as a command.
std::string one_line(const std::string& name, const std::string& value) {
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }))
    throw UserError(fmt::format(
        "--{} '{}' has a line break or another control character, which a batch script cannot have; choose another {}",
        name, printable(value), name == "output" || name == "chdir" ? "folder" : "value"));
  return shell_word(value);
}

}  // namespace

std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-+=:,./@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  return "'" + boost::replace_all_copy(word, "'", "'\\''") + "'";
}

std::string make_batch_script(const std::string& script, const BatchRequest& request) {
  std::string command, text;
  for (const auto& word : request.command) command += (command.empty() ? "" : " ") + shell_word(word);
  constexpr std::string_view training = "farandole train ", arguments = "\"$@\"",
                             launcher = "exec farandole run ", scratch = "scratch=";
  const bool trains = command.starts_with(training);
  const auto is_replaced = [&](const std::string& name) {
    return std::any_of(request.options.begin(), request.options.end(),
                       [&](const auto& option) { return option.first == name; });
  };
  std::istringstream lines(script);
  bool in_header = true, complete = false;
  for (std::string line; std::getline(lines, line);) {
    const auto option = option_of(line);
    if (in_header && text.empty()) {
      text = line + "\n# Written by farandole submit. sbatch with this file submits the same job again.\n";
    } else if (in_header && !option.empty()) {
      in_header = false;
      for (const auto& [name, value] : request.options)
        if (!value.empty()) text += fmt::format("#SBATCH --{}={}\n", name, one_line(name, value));
    }
    if (in_header || (!option.empty() && is_replaced(option))) continue;
    if (!trains && line.starts_with(scratch)) continue;  // Only a training copies its data.
    if (line.starts_with("trap "))
      text += fmt::format("export FARANDOLE_BIN={}\n", shell_word(request.programs.string()));
    if (line.starts_with(launcher)) {
      std::string options;
      for (const auto& word : request.run_options) options += word + " ";
      if (!request.run_dir.empty())
        options += fmt::format("--run-dir {} ", shell_word(request.run_dir.string()));
      line.insert(launcher.size(), options);
    }
    const auto start = line.find(training), given = line.find(arguments);
    if (start != line.npos && given != line.npos) {
      complete = true;
      if (trains)
        line.replace(given, arguments.size(), command.substr(training.size()));
      else
        line.replace(start, line.npos, command);
    }
    text += line + "\n";
  }
  if (in_header || !complete)
    throw Error(
        "the batch script of this installation has no #SBATCH line or does not start farandole train \"$@\"");
  return text;
}

}  // namespace farandole
