// Checks that a list of ranks is a valid group and that all ranks give the same list, before any
// rank creates the group.
// Thread safety: any thread may call this at any time.
#pragma once

#include <span>

#include "farandole/comm/communicator.h"

namespace farandole {

// Throws: UserError if `ranks` is empty, names a rank twice, or names a rank that a job of `size`
// ranks does not have.
void check_group(std::span<const int> ranks, int size);

// Collective: every rank of the group must call this in the same order.
// Throws: the same UserError on all ranks of `everyone` if their lists differ or are not valid.
void check_group_agreement(Communicator& everyone, std::span<const int> ranks);

}  // namespace farandole
