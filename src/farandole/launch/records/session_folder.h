// The private folder of one launcher: the reports of its supervisors and the session files of its mpirun.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

class SessionFolder {
 public:
  // Creates a folder in `parent`. Deletes it at the end of the scope, with the shared memory of its mpirun.
  // If a launcher is killed, both remain until the next launcher of the same user and parent removes them.
  // The launcher and its mpirun hold a lock, which shows that the folder is in use. A folder of another host
  // is removed if Slurm says that its job is over.
  // Throws: Error if the folder cannot be created.
  explicit SessionFolder(const std::filesystem::path& parent, const Environment& environment = &std::getenv);
  ~SessionFolder();
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  OwnedDescriptor lock_;  // Children inherit it.
};

// Returns variables that make mpirun (Open MPI 4 or 5) put its session files into `folder`. Without them, all
// jobs of a user share one folder. Each mpirun removes it if it is empty, even if another mpirun begins to
// use it. Returns an empty list if `environment` already selects a folder.
EnvironmentChanges session_environment(const std::filesystem::path& folder, const Environment& environment);

// Open MPI 4 keeps shared memory of each rank in /dev/shm. mpirun removes it, unless it was killed or
// interrupted. `job` is the number of the job in the environment of its ranks.
// Notes the job in a session folder, so that the end of the session removes the shared memory.
void note_open_mpi_job(const std::filesystem::path& folder, std::uint32_t job);
// Removes the job's shared memory on this host. `local_rank`: empty means all ranks.
void remove_shared_memory(std::uint32_t job, const std::string& local_rank) noexcept;

}  // namespace farandole
