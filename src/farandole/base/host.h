// What tells this host from others.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

namespace farandole {

std::string host_name();
// Another one after each start of this host; empty if it is unknown.
std::string boot_id();

}  // namespace farandole
