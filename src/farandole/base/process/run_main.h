// What the main() of each command does: it turns exceptions into one line and an exit code.
// Thread safety: any thread may call this at any time.
#pragma once

#include <functional>
#include <string_view>

namespace farandole {

// Returns what `body` returns. If `body` throws, prints "NAME: MESSAGE" to stderr, without control
// characters, and returns the exit code of an Error, or 1.
int run_main(std::string_view name, const std::function<int()>& body);

}  // namespace farandole
