// Which compression gradients travel with, as users write it. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

struct Compression {
  enum class Kind { none, float16, bfloat16, between_nodes, powersgd, top_k };
  Kind kind = Kind::none;
  int rank = 4;            // rank of PowerSGD's factors
  double fraction = 0.01;  // share of the elements that top-k sends

  // True if each rank compresses its gradients. Otherwise, they are at most rounded on their
  // way between nodes.
  bool of_ranks() const { return kind != Kind::none && kind != Kind::between_nodes; }

  friend bool operator==(const Compression&, const Compression&) = default;
};

// "none", "float16", "bfloat16", "bfloat16:between-nodes", "powersgd" or "powersgd:RANK",
// "topk" or "topk:FRACTION".
// Throws: UserError for any other text.
Compression parse_compression(std::string_view text);
// The text from which parse_compression() makes the same value.
std::string describe(const Compression& compression);

}  // namespace farandole
