// Runs a program and returns what it prints.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

struct CommandEnd {
  int exit_code = 0;
  std::string text;  // Standard output and error, limited to 1 MiB.
};

// Runs a program that gets no input. Returns nullopt if the program cannot be started, is killed by a signal,
// or runs longer than `patience`; in the last case it is killed.
std::optional<CommandEnd> run_command(const std::vector<std::string>& command,
                                      std::chrono::milliseconds patience);

// Returns the text of run_command(). Returns nullopt also if the program fails.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience);

}  // namespace farandole
