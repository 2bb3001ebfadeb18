#include "farandole/base/text/secrets.h"

#include <boost/algorithm/string/classification.hpp>
#include <boost/algorithm/string/join.hpp>
#include <boost/algorithm/string/predicate.hpp>
#include <boost/algorithm/string/split.hpp>

namespace farandole {
namespace {

bool names_a_secret(std::string_view name) {
  using boost::iends_with, boost::icontains;
  return iends_with(name, "token") || iends_with(name, "key") || icontains(name, "password") ||
         icontains(name, "passwd") || icontains(name, "secret");
}

}  // namespace

std::vector<std::string> without_secrets(std::vector<std::string> words) {
  bool is_value = false;
  for (auto& word : words) {
    const auto equals = word.find('=');
    if (is_value && !word.starts_with("--")) {
      word = "***";
      is_value = false;
    } else if (equals != word.npos) {
      is_value = false;
      if (names_a_secret(std::string_view(word).substr(0, equals)))
        word.replace(equals + 1, word.npos, "***");
    } else {
      is_value = word.starts_with("-") && names_a_secret(word);
    }
  }
  return words;
}

std::string without_secrets(std::string_view line) {
  std::vector<std::string> words;
  boost::split(words, line, boost::is_any_of(" "));
  return boost::join(without_secrets(std::move(words)), " ");
}

}  // namespace farandole
