#include "farandole/train/distributed_optimizer_options.h"

#include <fmt/format.h>

#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"

namespace farandole {

NonFiniteGradient::NonFiniteGradient(std::string parameter, std::vector<int> ranks)
    : Error(ranks.empty()
                ? fmt::format("the gradient of {} has a NaN or an infinity after its reduction", parameter)
                : fmt::format("the gradient of {} has a NaN or an infinity on {}", parameter,
                              describe_ranks(ranks))),
      parameter_(std::move(parameter)),
      ranks_(std::move(ranks)) {}

Synchronization parse_synchronization(std::string_view text) {
  using Kind = Synchronization::Kind;
  constexpr std::string_view averaged = "parameters:";
  if (text == "gradients") return {};
  if (text.starts_with(averaged)) {
    const auto when = text.substr(averaged.size());
    if (when == "epoch") return {Kind::parameters, 0};
    if (const auto every = parse_number<std::int64_t>(when); every && *every > 0)
      return {Kind::parameters, *every};
  }
  throw UserError(
      fmt::format("--synchronize cannot be '{}'; use gradients, parameters:K (an average every K steps, K "
                  "at least 1) or "
                  "parameters:epoch",
                  text));
}

}  // namespace farandole
