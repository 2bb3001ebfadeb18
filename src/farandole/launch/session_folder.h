// The private folder of one launcher: its socket, what its supervisors report, the session files of its
// mpirun. One thread.
#pragma once

#include <filesystem>

#include "farandole/base/launch_environment.h"
#include "farandole/base/owned_descriptor.h"
#include "farandole/base/temporary_folder.h"
#include "farandole/launch/child_process.h"

namespace farandole {

class SessionFolder {
 public:
  // Makes a folder in `parent`, which goes with its scope. A launcher that is killed leaves its folder: the
  // next one of the same user, host and parent removes it. A lock, which the launcher and its mpirun hold,
  // tells that a folder is still used. Throws Error.
  explicit SessionFolder(const std::filesystem::path& parent);
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  OwnedDescriptor lock_;  // children inherit it
};

// Variables that have mpirun (Open MPI 4 or 5) keep its session files in `folder`. Without them, all jobs of
// a user share one folder, which each mpirun removes where it finds it empty, also just as another begins to
// use it. Empty where `environment` chooses a folder already.
EnvironmentChanges session_environment(const std::filesystem::path& folder, const Environment& environment);

}  // namespace farandole
