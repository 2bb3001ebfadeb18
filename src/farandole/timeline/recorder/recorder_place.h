// Where a rank's recorder lies while the rank runs. A mapping of a file on a parallel or network file system
// costs a lock on a server for every page, other nodes do not see what was written to it, and it is what goes
// first when the servers do; so there the recorder lies on the node, and comes into the run directory at the
// end (base/staging_file.h), brought by the rank itself or, where that was killed, by its launcher.
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
  struct Room {
    std::uint64_t free_bytes = 0;  // 0: this user may not write there
    std::uint64_t all_bytes = 0;   // of the file system
  };
  std::function<const char*(const char*)> environment;                         // as std::getenv
  std::function<std::int64_t(const std::filesystem::path&)> file_system_type;  // -1: there is none
  std::function<Room(const std::filesystem::path&)> room;
  static RecorderMachine here();
};

struct RecorderWish {
  std::string place = "auto";  // or "run", or a folder, which must be there
  std::string said_by = "--recorder-dir";
};
// Of FARANDOLE_RECORDER_DIR, else "auto".
RecorderWish wished_place(const RecorderMachine& machine = RecorderMachine::here());

struct RecorderPlace {
  std::filesystem::path folder;  // on this node; empty: the run directory itself
  bool chosen = false;           // by "auto"
};

// Where the recorders of this node's ranks, of `bytes` together, go. "auto" is as the run directory's file
// system asks for: in SLURM_TMPDIR, TMPDIR, /tmp or, as a last resort, for its pages count as the job's
// memory, /dev/shm, whichever first has room for them and, behind them, for who else needs some. The ranks
// find the same where all have called this before the first creates its recorder. Throws UserError where the
// folder that was wished for is none that can be written.
RecorderPlace place_recorder(const std::filesystem::path& run_dir, const RecorderWish& wish,
                             std::uint64_t bytes, const RecorderMachine& machine = RecorderMachine::here());

}  // namespace farandole
