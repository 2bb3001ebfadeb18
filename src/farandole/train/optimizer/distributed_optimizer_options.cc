#include "farandole/train/distributed_optimizer_options.h"

#include <cstddef>
#include <fmt/format.h>
#include <utility>

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
                  "at least 1) or parameters:epoch",
                  text));
}

Shard parse_shard(std::string_view text) {
  if (text == "auto") return Shard::automatic;
  if (text == "off") return Shard::off;
  if (text == "on") return Shard::required;
  throw UserError(fmt::format("--shard cannot be '{}'; use auto, on or off", text));
}

std::string describe(const Sharding& sharding) {
  if (!sharding.divided)
    return fmt::format("each rank keeps all parameters and optimizer state: {}", sharding.why_not);
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto now = (sharding.bytes + mib - 1) / mib, undivided = (sharding.bytes_undivided + mib - 1) / mib;
  if (sharding.on_gpus)
    return fmt::format(
        "optimizer state is divided by {} ranks: with parameters, {} MiB of a GPU instead of {} MiB",
        sharding.ranks, now, undivided);
  return fmt::format(
      "parameters and optimizer state are kept once a node: {} MiB instead of {} MiB for {} ranks", now,
      undivided, sharding.ranks);
}

}  // namespace farandole
