#include "farandole/launch/records/session_folder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <new>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char *open_mpi_job = "open-mpi-job", *slurm_job = "slurm-job";

// A lock says nothing about processes of another host, whose folders may be here where the
// file system is shared.
std::string session_lock_name() {
  return "launcher-" + host_name() + ".lock";
}

// Whether Slurm says that the start of the job that this folder belongs to is over.
bool is_over_in_slurm(const fs::path& folder) {
  std::string job;
  int restarts = 0;
  if (!(std::ifstream(folder / slurm_job) >> job >> restarts)) return false;
  constexpr std::chrono::seconds patience(10);
  const auto [state, text, gone] = ask_for_job(job, patience);
  if (gone) return true;
  const auto now = state.find("JobState");
  if (now == state.end() || !state.contains("Restarts")) return false;
  constexpr std::array running = {"RUNNING",   "COMPLETING", "CONFIGURING", "RESIZING",
                                  "SIGNALING", "STOPPED",    "SUSPENDED"};
  return std::find(running.begin(), running.end(), now->second) == running.end() ||
         restarts_of(state) > restarts;
}

// The processes of the folder's mpirun have ended.
void remove_session(const fs::path& folder) {
  std::uint32_t job = 0;
  if (std::ifstream(folder / open_mpi_job) >> job) remove_shared_memory(job, "");
  discard_folder(folder);
}

bool is_own_folder(const fs::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// Returns the parent.
const fs::path& remove_leftovers(const fs::path& parent) {
  std::error_code ignored;
  const auto lock_name = session_lock_name();
  for (fs::directory_iterator entry(parent, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto& folder = entry->path();
    if (!folder.filename().string().starts_with("farandole-") || !is_own_folder(folder)) continue;
    const OwnedDescriptor lock(::open((folder / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    const bool unused = lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
    if (unused || is_discarded(folder) || is_over_in_slurm(folder)) remove_session(folder);
  }
  return parent;
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

SessionFolder::SessionFolder(const fs::path& parent, const Environment& environment)
    : folder_(remove_leftovers(parent)), lock_(make_lock(folder_.path())) {
  const auto job = own_slurm_job(environment);
  const char* const restarts = environment("SLURM_RESTART_COUNT");
  if (!job.empty())
    std::ofstream(folder_ / slurm_job) << job << " " << (restarts == nullptr ? "0" : restarts) << "\n";
}

SessionFolder::~SessionFolder() {
  remove_session(folder_.path());
}

void note_open_mpi_job(const fs::path& folder, std::uint32_t job) {
  std::error_code absent;  // On another host, if the folder is not shared.
  if (fs::is_directory(folder, absent)) std::ofstream(folder / open_mpi_job) << job << "\n";
}

void remove_shared_memory(std::uint32_t job, const std::string& local_rank) noexcept {
  try {
    const auto host = host_name();
    const auto name = fmt::format("vader_segment.{}.{}.{:x}.{}", host.substr(0, host.find('.')), ::geteuid(),
                                  job, local_rank);
    std::error_code ignored;
    for (fs::directory_iterator entry("/dev/shm", ignored), end; !ignored && entry != end;
         entry.increment(ignored))
      if (const auto file = entry->path().filename().string();
          local_rank.empty() ? file.starts_with(name) : file == name)
        ::unlink(entry->path().c_str());
  } catch (const std::bad_alloc&) {  // The files stay.
  }
}

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
