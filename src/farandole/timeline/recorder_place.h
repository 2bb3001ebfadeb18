// Where a rank's recorder lies while the rank runs. A mapping of a file on a parallel or network file system
// costs a lock on a server for every page, other nodes do not see what was written to it, and it is what goes
// first when the servers do; so there the recorder lies on the node, and comes into the run directory at the
// end (base/node_file.h), brought by the rank itself or, where that was killed, by its launcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace farandole {

// By statfs' f_type: Lustre, GPFS, NFS, BeeGFS, CephFS, SMB and their like, and FUSE, which may be any.
bool is_network_file_system(std::int64_t type);

// What place_recorder() asks the machine. The default is the machine.
struct RecorderMachine {
  std::function<const char*(const char*)> environment;                         // as std::getenv
  std::function<std::int64_t(const std::filesystem::path&)> file_system_type;  // -1: there is none
  std::function<std::uint64_t(const std::filesystem::path&)> room_bytes;  // 0: this user may not write there
  static RecorderMachine here();
};

// FARANDOLE_RECORDER_DIR, else "auto".
std::string wished_place(const RecorderMachine& machine = RecorderMachine::here());

// The folder on this node for a recorder of `bytes`; empty: the run directory itself. `wish` is the option
// --recorder-dir: "run", a folder, which must be there, or "auto": as the run directory's file system asks
// for, in SLURM_TMPDIR, TMPDIR, /tmp or, as a last resort, for its pages count as the job's memory, /dev/shm.
// Throws UserError where the folder that was wished for is none that can be written.
std::filesystem::path place_recorder(const std::filesystem::path& run_dir, const std::string& wish,
                                     std::size_t bytes,
                                     const RecorderMachine& machine = RecorderMachine::here());

}  // namespace farandole
