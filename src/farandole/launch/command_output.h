// Runs a program and returns what it prints.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// Returns standard output and error of a program that gets no input, limited to 64 KiB. Returns nullopt if
// the program cannot be started, fails, or runs longer than `patience`; in the last case it is killed.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience);

}  // namespace farandole
