#include "farandole/fusion/compression.h"

#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {

Compression parse_compression(std::string_view text) {
  using Kind = Compression::Kind;
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  const auto number = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  Compression parsed;
  if (colon == text.npos && kind == "none") return parsed;
  parsed.kind = kind == "float16"    ? Kind::float16
                : kind == "bfloat16" ? Kind::bfloat16
                : kind == "powersgd" ? Kind::powersgd
                : kind == "topk"     ? Kind::top_k
                                     : Kind::none;
  bool understood = parsed.kind != Kind::none;
  if (text == "bfloat16:between-nodes") {
    parsed.kind = Kind::between_nodes;
  } else if (understood && colon != text.npos) {
    understood = false;
    if (parsed.kind == Kind::powersgd) {
      parsed.rank = parse_number<int>(number).value_or(0);
      understood = parsed.rank > 0;
    } else if (parsed.kind == Kind::top_k) {
      parsed.fraction = parse_number<double>(number).value_or(0);
      understood = parsed.fraction > 0 && parsed.fraction <= 1;
    }
  }
  if (!understood)
    throw UserError(
        fmt::format("compression '{}' is unknown; give none, float16, bfloat16, bfloat16:between-nodes, "
                    "powersgd:RANK (1 or more) or topk:FRACTION (above 0, at most 1)",
                    text));
  return parsed;
}

std::string describe(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::none:
      return "none";
    case Compression::Kind::float16:
      return "float16";
    case Compression::Kind::bfloat16:
      return "bfloat16";
    case Compression::Kind::between_nodes:
      return "bfloat16:between-nodes";
    case Compression::Kind::powersgd:
      return fmt::format("powersgd:{}", compression.rank);
    case Compression::Kind::top_k:
      return fmt::format("topk:{}", compression.fraction);
  }
  return "none";
}

}  // namespace farandole
