#include <fmt/format.h>
#include <functional>
#include <map>

#include "farandole/base/text/parse_number.h"
#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

// How each option is read from text and written to text. "" means that the option is not written.
struct Option {
  std::function<std::string(const SupervisorOptions&)> text;
  std::function<void(SupervisorOptions&, const std::string&)> take;
};

template <class Member>
Option option(Member SupervisorOptions::*member) {
  return {[=](const SupervisorOptions& options) { return std::string(options.*member); },
          [=](SupervisorOptions& options, const std::string& text) { options.*member = text; }};
}
Option option(bool SupervisorOptions::*member) {
  return {[=](const SupervisorOptions& options) { return std::string(options.*member ? "yes" : ""); },
          [=](SupervisorOptions& options, const std::string&) { options.*member = true; }};
}

const std::map<std::string, Option>& all_options() {
  static const std::map<std::string, Option> all = {
      {"ranks",
       {[](const auto& options) { return std::to_string(options.world_size); },
        [](auto& options, const auto& text) { options.world_size = parse_number<int>(text).value_or(1); }}},
      {"folder", option(&SupervisorOptions::folder)},
      {"mpirun", option(&SupervisorOptions::mpirun)},
      {"prefix", option(&SupervisorOptions::prefix)},
      {"log-folder", option(&SupervisorOptions::log_folder)},
      {"run",
       {[](const auto& options) { return options.run.folder.string(); },
        [](auto& options, const auto& text) { options.run.folder = text; }}},
      {"logged",
       {[](const auto& options) { return std::string(options.run.logged ? "yes" : ""); },
        [](auto& options, const auto&) { options.run.logged = true; }}},
      {"launch", option(&SupervisorOptions::launch)},
      {"threads",
       {[](const auto& options) { return options.threads > 0 ? std::to_string(options.threads) : ""; },
        [](auto& options, const auto& text) { options.threads = parse_number<int>(text).value_or(0); }}},
      {"trace-mpi", option(&SupervisorOptions::trace_mpi)},
  };
  return all;
}

}  // namespace

std::vector<std::string> SupervisorOptions::to_arguments() const {
  std::vector<std::string> arguments = {std::string(supervise_flag)};
  for (const auto& [name, option] : all_options())
    if (const auto text = option.text(*this); !text.empty())
      arguments.push_back(fmt::format("--{}={}", name, text));
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), program.begin(), program.end());
  return arguments;
}

std::optional<SupervisorOptions> SupervisorOptions::parse(const std::vector<std::string>& arguments) {
  SupervisorOptions options;
  if (arguments.empty() || arguments.front() != supervise_flag) return std::nullopt;
  auto word = arguments.begin() + 1;
  for (; word != arguments.end() && *word != "--"; ++word) {
    const auto equals = word->find('=');
    if (!word->starts_with("--") || equals == std::string::npos) return std::nullopt;
    const auto found = all_options().find(word->substr(2, equals - 2));
    if (found == all_options().end()) return std::nullopt;
    found->second.take(options, word->substr(equals + 1));
  }
  if (word == arguments.end() || ++word == arguments.end()) return std::nullopt;
  options.program.assign(word, arguments.end());
  return options;
}

}  // namespace farandole
