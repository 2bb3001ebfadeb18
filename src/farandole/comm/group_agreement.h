// Whether all ranks mean the same group, before any of them makes it. Collective; any thread.
#pragma once

#include <span>

#include "farandole/comm/communicator.h"

namespace farandole {

// Throws the same UserError on all ranks of `everyone`, where their lists differ, or name nobody, a rank
// twice, or one that `everyone` does not have.
void check_group_agreement(Communicator& everyone, std::span<const int> ranks);

}  // namespace farandole
