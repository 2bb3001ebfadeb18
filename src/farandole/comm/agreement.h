// Compares what the ranks have, for messages to the user.
// Thread safety: any thread may call this at any time.
#pragma once

#include <span>
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

// Throws: UserError if `ranks` is empty, names a rank twice, or names a rank that a job of `size`
// ranks does not have.
void check_group(std::span<const int> ranks, int size);

// Call this before any rank creates the group.
// Collective: every rank of the group must call this in the same order.
// Throws: the same UserError on all ranks of `everyone` if their lists differ or are not valid.
void check_group_agreement(Communicator& everyone, std::span<const int> ranks);

}  // namespace farandole
