// A supervisor asks the program of its rank for its run directory (base/run/run_folder.h).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "farandole/base/files/owned_descriptor.h"

namespace farandole {

// Uses a file without a name. The file vanishes with the process, however the process ends.
class RunDirectoryHandshake {
 public:
  RunDirectoryHandshake();
  // Returns a variable for the program's environment.
  std::pair<std::string, std::string> asked() const;
  // Returns an empty path if the program has not answered or the folder no longer exists.
  std::filesystem::path answer() const;

 private:
  OwnedDescriptor file_;
};

}  // namespace farandole
