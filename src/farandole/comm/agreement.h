// Compares what the ranks have, for messages to the user.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/comm/communicator.h"

namespace farandole {

// A line of a text that is not the same on all ranks.
struct Disagreement {
  struct Variant {
    std::string text;
    std::vector<int> ranks;  // Ascending.
  };
  std::size_t line = 0;
  std::vector<Variant> variants;
};

// Compares a text on all ranks, line by line. Equal texts need one small message. `what` names the messages.
// Collective: every rank of the group must call this in the same order.
std::vector<Disagreement> find_disagreements(Communicator& communicator, std::string_view what,
                                             const std::string& text);

}  // namespace farandole
