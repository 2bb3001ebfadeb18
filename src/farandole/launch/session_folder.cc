#include "farandole/launch/session_folder.h"

#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/launch/machine.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// A lock says nothing about processes of another host, whose folders may be here where the
// file system is shared.
std::string session_lock_name() {
  return "launcher-" + host_name() + ".lock";
}

bool is_own_folder(const fs::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

void remove_leftovers(const fs::path& parent) {
  std::error_code ignored;
  const auto lock_name = session_lock_name();
  for (fs::directory_iterator entry(parent, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto& folder = entry->path();
    if (!folder.filename().string().starts_with("farandole-") || !is_own_folder(folder)) continue;
    const OwnedDescriptor lock(::open((folder / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    const bool unused = lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
    if (unused || is_discarded(folder)) discard_folder(folder);
  }
}

// The lock file gets its final name after it is locked. Before that, other launchers do
// not remove the folder.
OwnedDescriptor make_lock(const fs::path& folder) {
  const auto name = folder / session_lock_name();
  const auto unlocked = fs::path(name).replace_extension("new");
  OwnedDescriptor lock(::open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (lock.get() < 0) throw system_error("make", unlocked.string());
  // On network file systems without locks, folders of killed launchers are not removed.
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) fs::rename(unlocked, name);
  return lock;
}

}  // namespace

SessionFolder::SessionFolder(const fs::path& parent)
    : folder_((remove_leftovers(parent), parent)), lock_(make_lock(folder_.path())) {}

EnvironmentChanges session_environment(const fs::path& folder, const Environment& environment) {
  // orte_local_tmpdir_base is not used, because mpirun always passes orte_tmpdir_base to its ranks, and Open
  // MPI refuses the combination.
  constexpr const char* of_open_mpi_4 = "OMPI_MCA_orte_tmpdir_base";
  constexpr const char* of_open_mpi_5 = "PRTE_MCA_prte_tmpdir_base";
  for (const auto* chosen :
       {of_open_mpi_4, of_open_mpi_5, "OMPI_MCA_orte_local_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base"})
    if (const char* value = environment(chosen); value != nullptr && *value != '\0') return {};
  return {{of_open_mpi_4, folder.string()}, {of_open_mpi_5, folder.string()}};
}

}  // namespace farandole
