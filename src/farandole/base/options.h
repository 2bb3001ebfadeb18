// Command line options over a profile over defaults, read with Boost.Program_options. Usable from one thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

namespace farandole {

// The candidate with the smallest edit distance to `name`, or "" where none is near enough to be meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Parses argv[1..]; an option given on the command line wins over `--set name=value`, that over the profile's
// file, that over the default. `visible` holds the program's options; `positional` names those that take bare
// words. Of an option that is given twice in one place the last value counts, except that a profile may hold
// an option only once; options whose value is a list collect. A profile is an INI file of the same names; `--profile NAME` means FOLDER/NAME.ini, or a file's
// path; of several the last wins. Adds the options --help, and, where `profiles` is not empty, --profile and
// --set. Throws UserError that names the option (or file and line) and the nearest known name.
struct OptionParser {
  std::string usage;  // first lines of --help
  boost::program_options::options_description visible{"Options"};
  boost::program_options::positional_options_description positional;
  std::filesystem::path profiles;  // folder of the profiles that come with Farandole

  // Fills the variables bound with po::value(&variable). After --help was printed to stdout it returns false.
  bool parse(int argc, const char* const* argv, boost::program_options::variables_map* found = nullptr);
};

}  // namespace farandole
