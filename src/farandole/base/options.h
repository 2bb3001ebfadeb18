// Options from the command line, from profiles and from defaults, read with Boost.Program_options.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

// Values of options, compiled once, in options.cc: otherwise each unit with options compiles them again, for
// half a second.
extern template class boost::program_options::typed_value<bool>;
extern template class boost::program_options::typed_value<int>;
extern template class boost::program_options::typed_value<long>;
extern template class boost::program_options::typed_value<unsigned long>;
extern template class boost::program_options::typed_value<double>;
extern template class boost::program_options::typed_value<std::string>;

namespace farandole {

// The candidate with the smallest edit distance to `name`, or "" if no candidate is near enough.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// The value of an option as text; empty if it has none, or is a list.
std::string option_text(const boost::program_options::variable_value& given);

// Throws: UserError if `format`, the value of --format, is not one of `known`.
void check_format(const std::string& format, const std::vector<std::string>& known = {"text", "json"});

// Prints the program's name and version and returns true if argv[1] is --version.
bool print_version(int argc, const char* const* argv);

// Parses argv[1..]. The order of priority is: command line, `--set name=value`, environment, profile, site
// file, default. The variable of the option --log-steps is FARANDOLE_LOG_STEPS. The site file is a profile
// for all jobs of a machine: FARANDOLE_PROFILE_PATH if it is a file, FARANDOLE_PROFILE_PATH/farandole.ini if
// it is a folder, which may also hold named profiles, or else /etc/farandole.ini. FARANDOLE_PROFILE names a
// profile if --profile does not. `visible` holds the program's options, and `positional` names those that
// take positional arguments. A profile is an INI file with the same names. `--profile NAME` means
// FOLDER/NAME.ini, or the path of a file. If several profiles are given, the last one wins. The parser adds
// the options --help and --version and, if `profiles` is not empty, --profile and --set. If an option is
// given twice in one place, the last value counts; an option whose value is a list collects. A profile may
// hold an option only once.
// Throws: UserError that names the option (or file and line) and the nearest known name.
struct OptionParser {
  std::string usage;  // first lines of --help
  boost::program_options::options_description visible{"Options"};
  boost::program_options::options_description more{"More options"};  // that only --help all shows
  boost::program_options::positional_options_description positional;
  // Folder of the profiles that are installed with Farandole. Empty: only the command line counts.
  std::filesystem::path profiles;
  // Names that profiles may hold for other programs. Without a value, profiles may hold any other name.
  std::optional<std::vector<std::string>> foreign = std::vector<std::string>();
  // Options of earlier versions, and what to write instead.
  std::map<std::string, std::string> replaced;
  // Spellings of other programs, such as "np" of mpirun, which may also be written with one dash. They are
  // accepted silently wherever an option may stand.
  std::map<std::string, std::string> synonyms;

  // After parse(): where each option has its value from, for example "--batch", "FARANDOLE_BATCH" or
  // "/usr/share/farandole/profiles/mnist.ini:3". Options that have their default are left out.
  std::map<std::string, std::string> origins;

  // Of all options in `visible` and `more`, in this order.
  std::vector<std::string> names() const;

  // For a program that starts another one: the number of arguments before "--" or before the first word that
  // is neither an option nor the value of one.
  int own_arguments(int argc, const char* const* argv) const;

  // Fills the variables bound with po::value(&variable).
  // Returns false after it has printed the text of --help or --version to stdout.
  bool parse(int argc, const char* const* argv, boost::program_options::variables_map* found = nullptr);
};

}  // namespace farandole
