// Whether a list of ranks is a group, and whether all ranks mean the same one, before any of them makes it.
// Any thread.
#pragma once

#include <span>

#include "farandole/comm/communicator.h"

namespace farandole {

// Throws UserError where `ranks` name nobody, a rank twice, or one that a job of `size` ranks does not have.
void check_group(std::span<const int> ranks, int size);

// Collective. Throws the same UserError on all ranks of `everyone`, where their lists differ or are no
// group of its ranks.
void check_group_agreement(Communicator& everyone, std::span<const int> ranks);

}  // namespace farandole
