// The options of training loops as `farandole train` and `farandole fit` offer and check them, and what both
// commands declare and check their other options with.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/options.h"
#include "farandole/trainer/loop_options.h"

namespace farandole {

// The groups of --help.
struct OptionGroups {
  using Group = boost::program_options::options_description;
  Group data{"Model and data"}, training{"Training"}, devices{"Ranks and devices"};
  Group output{"Output and checkpoints"};
};

// Declares the options that mean the same to both commands, which --optimizer, --schedule and
// --checkpoint-every do not. Options that few need are added to `rare`.
void add_loop_options(OptionGroups& groups, OptionGroups::Group& rare, SharedLoopOptions& options);
// Throws: UserError that names an option with a wrong value, or two options that exclude each other.
void check_loop_options(const SharedLoopOptions& options);

// An option whose default is the value of the variable, which --help shows in the fewest digits.
template <class T>
auto with_default(T& variable) {
  return boost::program_options::value(&variable)->default_value(variable, fmt::format("{}", variable));
}
// An option without a default. `take` gets its text, with all spaces.
inline auto taken_by(std::function<void(const std::string&)> take) {
  return boost::program_options::value<std::string>()->notifier(std::move(take));
}

// Throw: UserError that names the option, which is given without dashes. The usual maximum keeps products of
// such numbers within 64 bits.
void check_range(const char* option, std::int64_t actual, std::int64_t minimum,
                 std::int64_t maximum = 1'000'000'000);
void check_not_negative(const char* option, double actual);
void check_one_of(const char* option, const std::string& actual, const std::vector<std::string>& known);

}  // namespace farandole
