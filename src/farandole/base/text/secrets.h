// Command lines as run directories and reports may show them to others.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// Values of options and settings whose names end with "token" or "key", or contain "password", "passwd" or
// "secret", become "***": --api-key VALUE, --api-key=VALUE, model.hub_token=VALUE.
std::vector<std::string> without_secrets(std::vector<std::string> words);
std::string without_secrets(std::string_view line);  // Words with a blank between two.

}  // namespace farandole
