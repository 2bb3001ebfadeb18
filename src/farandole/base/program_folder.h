// Where this program and what comes with it lie. Usable from any thread.
#pragma once

#include <filesystem>

namespace farandole {

std::filesystem::path program_folder();  // of the running executable

// The profiles that come with Farandole: ../share/farandole/profiles of an installation, or the checkout's
// profiles/ of a build.
std::filesystem::path profiles_folder();

}  // namespace farandole
