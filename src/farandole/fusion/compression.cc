#include "farandole/fusion/compression.h"

#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

struct Name {
  Compression::Kind kind;
  std::string_view text;
};

constexpr Name names[] = {{Compression::Kind::none, "none"},
                          {Compression::Kind::float16, "float16"},
                          {Compression::Kind::bfloat16, "bfloat16"},
                          {Compression::Kind::between_nodes, "bfloat16:between-nodes"}};

}  // namespace

Compression parse_compression(std::string_view text) {
  for (const auto& name : names)
    if (name.text == text) return {name.kind};
  const auto kind = text.substr(0, text.find(':'));
  if (kind == "powersgd" || kind == "topk")
    throw UserError(
        fmt::format("compression '{}' no longer exists; use bfloat16, bfloat16:between-nodes, or "
                    "--synchronize parameters:K",
                    text));
  throw UserError(fmt::format(
      "compression '{}' is unknown; give none, float16, bfloat16 or bfloat16:between-nodes", text));
}

std::string describe(const Compression& compression) {
  for (const auto& name : names)
    if (name.kind == compression.kind) return std::string(name.text);
  return "none";
}

}  // namespace farandole
