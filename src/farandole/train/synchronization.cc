#include "farandole/train/synchronization.h"

#include <charconv>
#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {

Synchronization parse_synchronization(std::string_view text) {
  using Kind = Synchronization::Kind;
  constexpr std::string_view averaged = "parameters:";
  if (text == "gradients") return {};
  if (text.starts_with(averaged)) {
    const auto when = text.substr(averaged.size());
    if (when == "epoch") return {Kind::parameters, 0};
    std::int64_t every = 0;
    const auto [end, error] = std::from_chars(when.data(), when.data() + when.size(), every);
    if (error == std::errc() && end == when.data() + when.size() && every > 0)
      return {Kind::parameters, every};
  }
  throw UserError(
      fmt::format("--synchronize cannot be '{}'; it is gradients, parameters:K (an average every K steps, K "
                  "at least 1) or "
                  "parameters:epoch",
                  text));
}

}  // namespace farandole
