#include "farandole/timeline/recorder_place.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// linux/magic.h has some of these; the others' are in their own sources and in coreutils' stat.
constexpr std::array<std::int64_t, 18> network_types = {
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x6969,      // NFS
    0x19830326,  // BeeGFS
    0x00C36400,  // CephFS
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x517B,      // SMB
    0xAAD7AAEA,  // PanFS
    0x5346414F,  // AFS
    0x6B414653,  // kAFS
    0x73757245,  // Coda
    0x20030528,  // OrangeFS, PVFS2
    0x013111A8,  // IBRIX
    0x7461636F,  // OCFS2
    0x01161970,  // GFS2
    0x01021997,  // 9P
    0x65735546,  // FUSE: GlusterFS, sshfs, Weka and others
};

// Of the folder or, where that is still to be made, of the nearest above it.
std::int64_t type_at(const fs::path& path) {
  struct statfs status {};
  for (fs::path at = fs::absolute(path);; at = at.parent_path()) {
    // f_type is signed and of 32 bits on some machines.
    if (::statfs(at.c_str(), &status) == 0) return static_cast<std::int64_t>(status.f_type) & 0xFFFFFFFF;
    if (at == at.parent_path()) return -1;
  }
}

std::uint64_t room_at(const fs::path& folder) {
  struct statvfs status {};
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || ::access(folder.c_str(), W_OK | X_OK) != 0 ||
      ::statvfs(folder.c_str(), &status) != 0)
    return 0;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

fs::path folder_on_node(std::size_t bytes, const RecorderMachine& machine) {
  std::array<const char*, 4> candidates = {machine.environment("SLURM_TMPDIR"), machine.environment("TMPDIR"),
                                           "/tmp", "/dev/shm"};
  for (const char* folder : candidates)
    if (folder != nullptr && *folder != '\0' && !is_network_file_system(machine.file_system_type(folder)) &&
        machine.room_bytes(folder) > bytes)
      return folder;
  return "";
}

}  // namespace

bool is_network_file_system(std::int64_t type) {
  return std::find(network_types.begin(), network_types.end(), type) != network_types.end();
}

RecorderMachine RecorderMachine::here() {
  return {[](const char* name) { return std::getenv(name); }, &type_at, &room_at};
}

std::string wished_place(const RecorderMachine& machine) {
  const char* wish = machine.environment("FARANDOLE_RECORDER_DIR");
  return wish != nullptr && *wish != '\0' ? wish : "auto";
}

fs::path place_recorder(const fs::path& run_dir, const std::string& wish, std::size_t bytes,
                        const RecorderMachine& machine) {
  if (wish == "run") return "";
  if (wish == "auto")
    return is_network_file_system(machine.file_system_type(run_dir)) ? folder_on_node(bytes, machine) : "";
  if (wish.empty() || machine.room_bytes(wish) == 0)
    throw UserError(
        "--recorder-dir is '" + wish +
        "', no folder with room that this node's user may write; give auto, run or such a folder");
  return wish;
}

}  // namespace farandole
