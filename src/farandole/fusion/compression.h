// Which compression gradients travel with, as users write it. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

namespace farandole {

struct Compression {
  enum class Kind { none, float16, bfloat16, between_nodes };
  Kind kind = Kind::none;

  // True if each rank compresses its gradients. Otherwise, they are at most rounded on their
  // way between nodes.
  bool of_ranks() const { return kind != Kind::none && kind != Kind::between_nodes; }

  friend bool operator==(const Compression&, const Compression&) = default;
};

// "none", "float16", "bfloat16" or "bfloat16:between-nodes".
// Throws: UserError for any other text.
Compression parse_compression(std::string_view text);
// The text from which parse_compression() makes the same value.
std::string describe(const Compression& compression);

}  // namespace farandole
