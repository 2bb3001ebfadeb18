// What a supervisor asks its rank's program: where its run directory is (base/run_folder.h). One thread.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

// A file without a name, which goes with the process however that ends.
class RunDirectoryHandshake {
 public:
  RunDirectoryHandshake();
  // A variable of the program's environment.
  std::pair<std::string, std::string> asked() const;
  // Empty: nothing has been said, or the folder is gone again.
  std::filesystem::path answer() const;

 private:
  OwnedDescriptor file_;
};

}  // namespace farandole
