// Random damage to files, for tests that whatever is read, nothing crashes. Used by one thread.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace farandole {

// With 1 to `most` changes: other bytes, numbers that fit no integer, gaps and repetitions of up to `stretch`
// bytes. Never empty.
inline std::string mutated(std::string bytes, std::mt19937& random, unsigned most, unsigned stretch = 300) {
  constexpr std::string_view tempting = "0123456789eE-.{}[]\",:\\\n\xff";
  for (auto count = 1 + random() % most; count > 0; --count) {
    const auto at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = tempting[random() % tempting.size()];
        break;
      case 2:
        bytes.erase(at, 1 + random() % stretch);
        break;
      case 3:
        bytes.insert(at, std::to_string(random()) + std::to_string(random()));
        break;
      default:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % stretch));
    }
    if (bytes.empty()) bytes = "x";
  }
  return bytes;
}

}  // namespace farandole
