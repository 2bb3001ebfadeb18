// The versions that run.json and checkpoints name.
// Thread safety: any thread may call this at any time.
#pragma once

#include <map>
#include <string>

namespace farandole {

std::map<std::string, std::string> library_versions();  // by library; "farandole" is one of them

}  // namespace farandole
