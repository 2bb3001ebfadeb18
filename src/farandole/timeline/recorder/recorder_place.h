// Chooses where a rank's recorder is while the rank runs. On a parallel or network file system, a
// mapped file costs a server lock for every page, other nodes do not see what was written, and the file
// is lost first when a server fails. Therefore the recorder is then on the node's local disk and is
// copied to the run directory at the end (base/files/staging_file.h). The rank copies it, or its launcher
// does if the rank was killed.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace farandole {

// Interprets statfs' f_type. True for Lustre, GPFS, NFS, BeeGFS, CephFS, SMB and similar ones, and for FUSE,
// which may be any file system.
bool is_network_file_system(std::int64_t type);

// The queries of place_recorder() to the machine. here() asks this machine; tests use others.
struct RecorderMachine {
  struct Room {
    std::uint64_t free_bytes = 0;  // 0 if this user may not write there
    std::uint64_t all_bytes = 0;   // size of the file system
  };
  std::function<const char*(const char*)> environment;  // as std::getenv
  // -1 if the path has no file system.
  std::function<std::int64_t(const std::filesystem::path&)> file_system_type;
  std::function<Room(const std::filesystem::path&)> room;
  static RecorderMachine here();
};

struct RecorderWish {
  std::string place = "auto";  // or "run", or an existing folder
  std::string said_by = "--recorder-dir";
};
// The value of FARANDOLE_RECORDER_DIR, or "auto" if it is not set.
RecorderWish wished_place(const RecorderMachine& machine = RecorderMachine::here());

struct RecorderPlace {
  std::filesystem::path folder;  // on this node; empty means in the run directory itself
  bool chosen = false;           // chosen by "auto"
};

// Chooses the place for the recorders of this node's ranks, which need `bytes` together. "auto" uses the run
// directory unless it is on a network file system. Otherwise it uses the first of SLURM_TMPDIR, TMPDIR, /tmp
// and /dev/shm that has enough space for the recorders and for other programs. /dev/shm is last, because its
// pages count as memory of the job. All ranks find the same place if all of them call this before the first
// one creates its recorder.
// Throws: UserError if the requested folder cannot be written.
RecorderPlace place_recorder(const std::filesystem::path& run_dir, const RecorderWish& wish,
                             std::uint64_t bytes, const RecorderMachine& machine = RecorderMachine::here());

}  // namespace farandole
