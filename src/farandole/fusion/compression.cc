#include "farandole/fusion/compression.h"

#include <charconv>
#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

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
  const bool understood =
      parsed.kind != Kind::none &&
      (colon == text.npos ||
       (parsed.kind == Kind::powersgd && parse_number(number, parsed.rank) && parsed.rank > 0) ||
       (parsed.kind == Kind::top_k && parse_number(number, parsed.fraction) && parsed.fraction > 0 &&
        parsed.fraction <= 1));
  if (!understood)
    throw UserError(
        fmt::format("compression '{}' is not known; give none, float16, bfloat16, powersgd:RANK "
                    "(1 or more) or topk:FRACTION (above 0, at most 1)",
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
    case Compression::Kind::powersgd:
      return fmt::format("powersgd:{}", compression.rank);
    case Compression::Kind::top_k:
      return fmt::format("topk:{}", compression.fraction);
  }
  return "none";
}

}  // namespace farandole
