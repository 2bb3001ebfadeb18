// The cores that this rank may use.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

int allowed_cores();
// One bit for each core that this rank may use, in 64-bit words.
std::vector<std::uint64_t> core_mask();
// True if this rank is bound to a part of the machine's cores. It may then use them all.
bool has_own_cores();
// True if `local_ranks` ranks of this machine must share the cores that this rank may use and are
// more than the cores.
bool outnumber_cores(int local_ranks);

}  // namespace farandole
