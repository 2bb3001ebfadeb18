// What another program prints. Usable from any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace farandole {

// Standard output and error, at most 64 KiB of it, and the end of a program that takes no input; nothing
// where it cannot be started, ends with an error, or takes longer than `patience` (then it is killed).
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience);

}  // namespace farandole
