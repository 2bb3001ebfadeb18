#include "farandole/base/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iostream>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/algorithm/string/replace.hpp>

#include "farandole/base/error.h"
#include "farandole/base/version.h"

template class boost::program_options::typed_value<bool>;
template class boost::program_options::typed_value<int>;
template class boost::program_options::typed_value<long>;
template class boost::program_options::typed_value<unsigned long>;
template class boost::program_options::typed_value<double>;
template class boost::program_options::typed_value<std::string>;

namespace farandole {
namespace {

namespace po = boost::program_options;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::vector<std::string> names_of(const po::options_description& options) {
  std::vector<std::string> names;
  for (const auto& option : options.options()) names.push_back(option->long_name());
  return names;
}

po::options_description all_options(const OptionParser& parser) {
  po::options_description both;
  both.add(parser.visible).add(parser.more);
  return both;
}

using Synonyms = std::map<std::string, std::string>;

// The word with the option's own name: "--old=1" becomes "--new=1", and "-np" becomes "--ranks".
std::string own_spelling(const std::string& word, const Synonyms& synonyms) {
  const auto begin = word.find_first_not_of('-');
  if (begin == 0 || begin == word.npos) return word;
  const auto end = std::min(word.find('='), word.size());
  const auto own = synonyms.find(word.substr(begin, end - begin));
  return own == synonyms.end() ? word : "--" + own->second + word.substr(end);
}

// The names that an option can have in one place.
struct KnownNames {
  std::vector<std::string> names;
  const std::map<std::string, std::string>& replaced;
};

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string_view dashes) {
  const auto nearest = nearest_name(name, known);
  if (!nearest.empty()) return "; did you mean " + std::string(dashes) + nearest + "?";
  return dashes.empty() ? "" : "; --help lists the options";
}

std::string without_dashes(std::string_view token) {
  token.remove_prefix(std::min(token.find_first_not_of('-'), token.size()));
  return std::string(token.substr(0, token.find('=')));
}

// `dashes`: what stands before a name in this place.
[[noreturn]] void refuse_unknown(const std::string& where, std::string_view dashes, const std::string& name,
                                 const KnownNames& known) {
  if (const auto instead = known.replaced.find(name); instead != known.replaced.end())
    throw UserError(
        fmt::format("{0}{1}{2} does not exist any more; use {1}{3}", where, dashes, name, instead->second));
  throw UserError(
      fmt::format("{}unknown option {}{}{}", where, dashes, name, did_you_mean(name, known.names, dashes)));
}

// Translates Boost's exceptions into UserError. `where` is "" for the command line.
[[noreturn]] void rethrow(const po::error& error, const std::string& where, const KnownNames& known) {
  if (const auto* unknown = dynamic_cast<const po::unknown_option*>(&error))
    refuse_unknown(where, where.empty() ? "--" : "", without_dashes(unknown->get_option_name()), known);
  throw UserError(where + error.what());
}

using Origins = std::map<std::string, std::string>;

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// A value that is there already has priority.
void store(const po::parsed_options& parsed, const std::string& origin, po::variables_map& found,
           Origins& origins) {
  for (const auto& option : parsed.options) {
    const auto before = found.find(option.string_key);
    if (before == found.end() || before->second.defaulted())
      origins[option.string_key] = origin.empty() ? "--" + option.string_key : origin;
  }
  po::store(parsed, found);
}

std::filesystem::path site_file() {
  std::filesystem::path place = variable("FARANDOLE_PROFILE_PATH");
  if (place.empty()) return "/etc/farandole.ini";
  return std::filesystem::is_directory(place) ? place / "farandole.ini" : place;
}

std::filesystem::path profile_file(const std::string& name, const std::filesystem::path& folder) {
  if (std::filesystem::is_regular_file(name)) return name;
  for (const auto& place : {std::filesystem::path(variable("FARANDOLE_PROFILE_PATH")), folder})
    if (const auto file = place / (name + ".ini"); !place.empty() && std::filesystem::is_regular_file(file))
      return file;
  std::vector<std::string> known;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".ini") known.push_back(entry.path().stem());
  std::sort(known.begin(), known.end());
  const auto list = known.empty()
                        ? fmt::format("there are no profiles in {}", folder.string())
                        : fmt::format("the profiles in {} are {}", folder.string(), fmt::join(known, ", "));
  throw UserError(fmt::format("no profile '{}'{} ({}; a path of a file is also possible)", name,
                              did_you_mean(name, known, ""), list));
}

void read_profile(const std::filesystem::path& file, const OptionParser& parser, po::variables_map& found,
                  Origins& origins) {
  std::ifstream stream(file);
  if (!stream)
    throw UserError("profile " + file.string() + " cannot be read; check its path and permissions");
  std::string line;
  const auto options = all_options(parser);
  const KnownNames known{names_of(options), parser.replaced};
  std::set<std::string> seen;
  // The file is parsed line by line, so that a message can name the line.
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto where = file.string() + ":" + std::to_string(number) + ": ";
    try {
      std::istringstream one(line);
      auto parsed = po::parse_config_file(one, options, /*allow_unregistered=*/true);
      for (auto& option : parsed.options) {
        if (const auto own = parser.synonyms.find(option.string_key); own != parser.synonyms.end()) {
          option.string_key = own->second;
          option.unregistered = false;
        }
        if (!seen.insert(option.string_key).second)
          throw UserError(where + option.string_key + " is given twice; remove one of the lines");
        const auto& foreign = parser.foreign;
        const bool is_foreign =
            !foreign || std::find(foreign->begin(), foreign->end(), option.string_key) != foreign->end();
        if (option.unregistered && !is_foreign) refuse_unknown(where, "", option.string_key, known);
      }
      std::erase_if(parsed.options, [](const auto& option) { return option.unregistered; });
      store(parsed, file.string() + ":" + std::to_string(number), found, origins);
    } catch (const po::error& error) {
      rethrow(error, where, known);
    }
  }
}

// A list collects its values. Of any other option that is given twice, the last value is kept.
bool is_list(const po::option_description& option) {
  const auto& value = *option.semantic();
  return value.is_composing() || value.max_tokens() > 1 ||
         dynamic_cast<const po::typed_value<std::vector<std::string>>*>(&value) != nullptr;
}

void keep_last(std::vector<po::option>& given, const po::options_description& options) {
  std::set<std::string> seen;
  const auto is_overruled = [&](const po::option& option) {
    const bool is_first_seen = seen.insert(option.string_key).second;
    const auto* known = options.find_nothrow(option.string_key, false);
    return !is_first_seen && known != nullptr && !is_list(*known);
  };
  given.erase(given.begin(), std::remove_if(given.rbegin(), given.rend(), is_overruled).base());
}

// A value of --set counts like one on the command line, which has priority.
void read_settings(const std::vector<std::string>& settings, const OptionParser& parser, int style,
                   po::variables_map& found, Origins& origins) {
  const auto options = all_options(parser);
  const auto guarded = [&](const std::string& setting, const auto& read) {
    try {
      read();
    } catch (const po::error& error) {
      rethrow(error, "--set " + setting + ": ", {names_of(options), parser.replaced});
    }
  };
  po::parsed_options all(&options);
  for (const auto& setting : settings) {
    if (setting.find('=') == std::string::npos)
      throw UserError("--set " + setting + " has no value; write --set name=value");
    guarded(setting, [&] {
      const std::vector<std::string> arguments = {own_spelling("--" + setting, parser.synonyms)};
      const auto one = po::command_line_parser(arguments).options(options).style(style).run();
      all.options.push_back(one.options.at(0));
      all.options.back().original_tokens = {setting};
    });
  }
  keep_last(all.options, options);
  for (const auto& option : all.options) {
    po::parsed_options one(&options);
    one.options = {option};
    guarded(option.original_tokens.front(), [&] { store(one, "--set", found, origins); });
  }
}

void print_program_version() {
  std::cout << program_invocation_short_name << " " << version() << "\n";
}

// po::store() keeps the first value of an option, so the last profile is stored first.
void read_profiles(const std::vector<std::string>& names, const OptionParser& parser,
                   po::variables_map& found, Origins& origins) {
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    read_profile(profile_file(*name, parser.profiles), parser, found, origins);
  if (const auto place = variable("FARANDOLE_PROFILE_PATH");
      !place.empty() && !std::filesystem::exists(place))
    throw UserError("FARANDOLE_PROFILE_PATH is " + place +
                    ", which does not exist; name a profile, or a folder of profiles");
  if (const auto site = site_file(); std::filesystem::is_regular_file(site))
    read_profile(site, parser, found, origins);
}

void read_environment(const OptionParser& parser, int style, po::variables_map& found, Origins& origins) {
  const auto options = all_options(parser);
  auto spellings = parser.synonyms;
  for (const auto& name : names_of(options)) spellings[name] = name;
  for (const auto& [spelling, own] : spellings) {
    auto name = "FARANDOLE_" + boost::to_upper_copy(spelling);
    boost::replace_all(name, "-", "_");
    const auto value = variable(name);
    if (value.empty() || options.find(own, false).semantic()->max_tokens() == 0) continue;
    try {
      const std::vector<std::string> arguments = {"--" + own + "=" + value};
      store(po::command_line_parser(arguments).options(options).style(style).run(), name, found, origins);
    } catch (const po::error& error) {
      rethrow(error, name + ": ", {names_of(options), parser.replaced});
    }
  }
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const bool begins = name.size() >= 3 && candidate.starts_with(name);
    const auto distance = begins ? 1 : edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string option_text(const po::variable_value& given) {
  std::ostringstream text;
  const auto& value = given.value();
  const auto add = [&](const auto* typed) {
    if (typed != nullptr) text << *typed;
  };
  add(boost::any_cast<std::string>(&value));
  add(boost::any_cast<double>(&value));
  add(boost::any_cast<bool>(&value));
  add(boost::any_cast<int>(&value));
  add(boost::any_cast<std::int64_t>(&value));
  add(boost::any_cast<std::uint64_t>(&value));
  return text.str();
}

void check_format(const std::string& format, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), format) != known.end()) return;
  const std::vector<std::string> others(known.begin(), known.end() - 1);
  throw UserError(
      fmt::format("--format cannot be '{}'; use {} or {}", format, fmt::join(others, ", "), known.back()));
}

bool print_version(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "--version") return false;
  print_program_version();
  return true;
}

std::vector<std::string> OptionParser::names() const {
  return names_of(all_options(*this));
}

int OptionParser::own_arguments(int argc, const char* const* argv) const {
  const auto options = all_options(*this);
  int next = 1;
  for (; next < argc && argv[next][0] == '-' && std::string_view(argv[next]) != "--"; ++next) {
    const auto word = own_spelling(argv[next], synonyms);
    const auto name = word.starts_with("--") ? word.substr(2) : word;  // Boost looks for "-n" and "ranks".
    const auto* option = options.find_nothrow(name, false);
    const bool has_value = option != nullptr ? option->semantic()->min_tokens() > 0
                                             : !profiles.empty() && (name == "profile" || name == "set");
    if (has_value && next + 1 < argc && std::string_view(argv[next + 1]) != "--") ++next;
  }
  return std::min(next, argc);
}

bool OptionParser::parse(int argc, const char* const* argv, po::variables_map* found) {
  const bool with_profiles = !profiles.empty();
  po::options_description common("General");
  common.add_options()("help,h", "print this text")("version", "print the version");
  std::vector<std::string> settings;
  if (with_profiles)
    common.add_options()("profile", po::value<std::vector<std::string>>()->composing(),
                         "profile file, or name of an installed profile; repeatable, the last one wins")(
        "set", po::value(&settings)->composing(),
        "name=value: same as --name value, for scripts; repeatable");
  po::options_description known_options;
  known_options.add(visible).add(more).add(common);
  std::vector<std::string> arguments(argv + 1, argv + std::max(argc, 1));
  const auto help = std::find(arguments.begin(), arguments.end(), "--help");
  const bool everything =
      !more.options().empty() && std::distance(help, arguments.end()) > 1 && help[1] == "all";
  if (everything) arguments.erase(help + 1);
  for (auto word = arguments.begin(); word != arguments.end() && *word != "--"; ++word)
    *word = own_spelling(*word, synonyms);

  po::variables_map local;
  auto& variables = found != nullptr ? *found : local;
  const KnownNames known{names_of(known_options), replaced};
  namespace style = po::command_line_style;
  const int exact = style::default_style & ~style::allow_guessing;
  try {
    auto parsed =
        po::command_line_parser(arguments).options(known_options).positional(positional).style(exact).run();
    keep_last(parsed.options, known_options);
    store(parsed, "", variables, origins);
  } catch (const po::error& error) {
    rethrow(error, "", known);
  }
  if (variables.count("help") != 0) {
    po::options_description shown;
    shown.add(visible);
    if (everything) shown.add(more);
    shown.add(common);
    std::ostringstream options;
    options << shown;
    auto text = options.str();  // Boost writes "-n [ --ranks ] arg".
    boost::replace_all(text, " [ --", ", --");
    boost::replace_all(text, " ] arg", " arg   ");
    boost::replace_all(text, " ]", "   ");
    std::cout << usage << text;
    if (!everything && !more.options().empty())
      std::cout << "\n--help all also shows the options that few need.\n";
    return false;
  }
  if (variables.count("version") != 0) {
    print_program_version();
    return false;
  }
  if (with_profiles) {
    if (variables.count("set") != 0)
      read_settings(variables["set"].as<std::vector<std::string>>(), *this, exact, variables, origins);
    read_environment(*this, exact, variables, origins);
    std::vector<std::string> names;
    if (variables.count("profile") != 0)
      names = variables["profile"].as<std::vector<std::string>>();
    else if (const auto name = variable("FARANDOLE_PROFILE"); !name.empty())
      names = {name};
    read_profiles(names, *this, variables, origins);
  }
  try {
    po::notify(variables);
  } catch (const po::error& error) {
    rethrow(error, "", known);
  }
  return true;
}

}  // namespace farandole
