// The private folder of one launcher: its socket, the reports of its supervisors, and the session
// files of its mpirun.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>

#include "farandole/base/launch_environment.h"
#include "farandole/base/owned_descriptor.h"
#include "farandole/base/temporary_folder.h"
#include "farandole/launch/child_process.h"

namespace farandole {

class SessionFolder {
 public:
  // Creates a folder in `parent` and deletes it at the end of the scope. If a launcher is killed, its folder
  // remains until the next launcher of the same user, host and parent removes it. The launcher and its mpirun
  // hold a lock, which shows that the folder is in use.
  // Throws: Error if the folder cannot be created.
  explicit SessionFolder(const std::filesystem::path& parent);
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  OwnedDescriptor lock_;  // Children inherit it.
};

// Returns variables that make mpirun (Open MPI 4 or 5) put its session files into `folder`. Without them, all
// jobs of a user share one folder. Each mpirun removes it if it is empty, even if another mpirun begins to
// use it. Returns an empty list if `environment` already selects a folder.
EnvironmentChanges session_environment(const std::filesystem::path& folder, const Environment& environment);

}  // namespace farandole
