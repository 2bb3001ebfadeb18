// farandole checkpoint list|show|verify RUN|FILE: lists, shows or verifies the checkpoints of a run.
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/options.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"

namespace farandole {
namespace {

// Returns the checkpoint files, newest first.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw UserError(path.string() + " does not exist; give a run directory or a checkpoint file");
  if (!std::filesystem::is_directory(path)) return {path};
  const auto inside = path / "checkpoints";
  const auto folder = std::filesystem::is_directory(inside) ? inside : path;
  auto files = checkpoint_files(folder);
  if (files.empty()) throw CorruptInput("there is no checkpoint in " + folder.string());
  return files;
}

std::string score_text(double score) {
  return std::isnan(score) ? "-" : fmt::format("{:.6g}", score);
}

int list(const std::vector<std::filesystem::path>& files) {
  fmt::print("{:<20} {:>12} {:>8} {:>12} {:>14}\n", "file", "step", "epoch", "score", "bytes");
  for (const auto& file : files) {
    try {
      const auto info = read_checkpoint_info(file);
      fmt::print("{:<20} {:>12} {:>8} {:>12} {:>14}{}\n", file.filename().string(), info.step, info.epoch,
                 score_text(info.score), info.bytes,
                 info.not_finite.empty() ? "" : "  not finite: " + info.not_finite);
    } catch (const CorruptInput& error) {
      fmt::print("{:<20} unreadable: {}\n", file.filename().string(), error.what());
    }
  }
  return 0;
}

int show(const std::filesystem::path& file) {
  const auto header = read_checkpoint_header(file);
  fmt::print(
      "file            {}\nformat_version  {}\nstep            {}\nepoch           {}\nworld_size      {}\n"
      "score           {}\nconfig          {}\n\n",
      file.string(), checkpoint_format_version, header.step, header.epoch, header.world_size,
      score_text(header.score), header.config);
  std::size_t width = 0;
  for (const auto& array : header.arrays) width = std::max(width, array.path.size());
  for (const auto& array : header.arrays)
    fmt::print("{:<{}}  {:<8}  [{}]\n", array.path, width, name_of(array.dtype),
               fmt::join(array.shape, ", "));
  return 0;
}

int verify(const std::vector<std::filesystem::path>& files) {
  int unusable = 0;
  for (const auto& file : files) {
    try {
      const auto header = verify_checkpoint(file);
      if (!header.not_finite.empty())
        throw CorruptInput(file.string() + ": the file is whole, but " + header.not_finite +
                           " has a NaN or an infinity; use another checkpoint");
      fmt::print("{}: good\n", file.string());
    } catch (const CorruptInput& error) {
      ++unusable;
      fmt::print(stderr, "farandole checkpoint: {}\n", error.what());
    }
  }
  return unusable == 0 ? 0 : static_cast<int>(ExitCode::corrupt_input);
}

int run(int argc, char** argv) {
  std::string command;
  std::string path;
  OptionParser parser;
  parser.usage =
      "Usage: farandole checkpoint list|show|verify RUN|FILE\n\n"
      "Lists, shows or verifies the checkpoints of a run.\n\n"
      "Commands:\n"
      "  list    list the checkpoints, newest first\n"
      "  show    print the attributes, and the type and shape of every data set; of the newest checkpoint\n"
      "          if RUN is given\n"
      "  verify  read everything and compare checksums; the exit code is 65 if a checkpoint is damaged or has a\n"
      "          NaN or an infinity\n\n"
      "Examples:\n"
      "  $ farandole checkpoint verify RUN\n";
  namespace po = boost::program_options;
  parser.visible.add_options()("command", po::value(&command),
                               "list, show or verify (first positional argument).")(
      "path", po::value(&path), "Run directory or checkpoint file (second positional argument).");
  parser.positional.add("command", 1).add("path", 1);
  if (!parser.parse(argc, argv)) return 0;

  const std::vector<std::string> commands = {"list", "show", "verify"};
  if (std::find(commands.begin(), commands.end(), command) == commands.end()) {
    const auto nearest = nearest_name(command, commands);
    throw UserError(
        (command.empty() ? "no command given" : "unknown command '" + command + "'") +
        (nearest.empty() ? "; there are list, show and verify" : "; did you mean " + nearest + "?"));
  }
  if (path.empty()) throw UserError(command + " needs a run directory or a checkpoint file");
  const auto files = files_at(path);
  if (command == "list") return list(files);
  return command == "show" ? show(files.front()) : verify(files);
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  farandole::set_up_log();
  try {
    return farandole::run(argc, argv);
  } catch (const farandole::Error& error) {
    fmt::print(stderr, "farandole checkpoint: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole checkpoint: {}\n", error.what());
    return static_cast<int>(farandole::ExitCode::failure);
  }
}
