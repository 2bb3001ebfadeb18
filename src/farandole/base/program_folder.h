// Where this program and what comes with it lie. Usable from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace farandole {

std::filesystem::path program_folder();  // of the running executable

// The profiles that come with Farandole: ../share/farandole/profiles of an installation, or the checkout's
// profiles/ of a build.
std::filesystem::path profiles_folder();

// What to do about a program or library that is not there, a sentence: the command that builds `target` in a
// build folder; elsewhere how to install it.
std::string how_to_build(std::string_view target, bool needs_libtorch);

}  // namespace farandole
