// Which compression gradients travel with, as users write it. Plain values.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

struct Compression {
  enum class Kind { none, float16, bfloat16, powersgd, top_k };
  Kind kind = Kind::none;
  int rank = 4;            // of PowerSGD's factors
  double fraction = 0.01;  // of the elements that top-k sends

  friend bool operator==(const Compression&, const Compression&) = default;
};

// "none", "float16", "bfloat16", "powersgd" or "powersgd:RANK", "topk" or "topk:FRACTION". Throws UserError.
Compression parse_compression(std::string_view text);
std::string describe(const Compression& compression);  // parse_compression() of it gives the same

}  // namespace farandole
