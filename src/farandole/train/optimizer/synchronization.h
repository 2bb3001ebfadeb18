// What ranks keep equal, as users write it: their gradients in each step, or their parameters now and then.
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace farandole {

struct Synchronization {
  enum class Kind { gradients, parameters };
  Kind kind = Kind::gradients;
  std::int64_t every =
      0;  // steps from one average of the parameters to the next; 0: at the end of each epoch

  bool of_parameters() const { return kind == Kind::parameters; }
  friend bool operator==(const Synchronization&, const Synchronization&) = default;
};

// "gradients", "parameters:K" or "parameters:epoch". Throws UserError.
Synchronization parse_synchronization(std::string_view text);

}  // namespace farandole
