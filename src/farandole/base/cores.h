// Which cores this rank has. Usable from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

int allowed_cores();
// A bit for each core that this rank may use, in 64-bit words.
std::vector<std::uint64_t> core_mask();
// A rank that is bound to cores of its own may use them all, whatever others do.
bool has_own_cores();
// Whether so many ranks of this node have to share the cores that this one may use.
bool outnumber_cores(int local_ranks);

}  // namespace farandole
