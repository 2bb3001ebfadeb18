// Which cores this rank has. Usable from any thread.
#pragma once

namespace farandole {

int allowed_cores();
// A rank that is bound to cores of its own may use them all, whatever others do.
bool has_own_cores();
// Whether so many ranks of this node have to share the cores that this one may use.
bool outnumber_cores(int local_ranks);

}  // namespace farandole
