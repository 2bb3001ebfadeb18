// Options from the command line, from profiles and from defaults, read with Boost.Program_options.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

namespace farandole {

// The candidate with the smallest edit distance to `name`, or "" if no candidate is near enough.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Prints the program's name and version and returns true if argv[1] is --version.
bool print_version(int argc, const char* const* argv);

// Parses argv[1..]. The order of priority is: command line, `--set name=value`, profile, default.
// `visible` holds the program's options, and `positional` names those that take positional arguments. A
// profile is an INI file with the same names. `--profile NAME` means FOLDER/NAME.ini, or the path of a
// file. If several profiles are given, the last one wins. The parser adds the options --help and --version
// and, if `profiles` is not empty, --profile and --set. If an option is given twice in one place, the last
// value counts; an option whose value is a list collects. A profile may hold an option only once.
// Throws: UserError that names the option (or file and line) and the nearest known name.
struct OptionParser {
  std::string usage;  // first lines of --help
  boost::program_options::options_description visible{"Options"};
  boost::program_options::positional_options_description positional;
  std::filesystem::path profiles;  // folder of the profiles that are installed with Farandole

  // Fills the variables bound with po::value(&variable).
  // Returns false after it has printed the text of --help or --version to stdout.
  bool parse(int argc, const char* const* argv, boost::program_options::variables_map* found = nullptr);
};

}  // namespace farandole
