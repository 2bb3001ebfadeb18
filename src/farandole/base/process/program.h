// This program: the main() of each command, its folder, and the files that are installed with it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace farandole {

// Returns what `body` returns. A file beyond ulimit -f fails like one on a full disk, because SIGXFSZ is
// ignored. If `body` throws, prints "NAME: MESSAGE" to stderr, without control
// characters, and returns the exit code of an Error, or 1.
int run_main(std::string_view name, const std::function<int()>& body);

std::filesystem::path program_folder();  // folder of the running executable

// The folder of the profiles that come with Farandole: ../share/farandole/profiles, which in a build folder
// is a link to the checkout's.
std::filesystem::path profiles_folder();

// A sentence that says what to do if a program or library is missing: the command that builds `target` in a
// build folder, otherwise how to install it.
std::string how_to_build(std::string_view target, bool needs_libtorch);

}  // namespace farandole
