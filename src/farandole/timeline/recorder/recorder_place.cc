#include "farandole/timeline/recorder/recorder_place.h"

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

// Some of these are in linux/magic.h, the others in the sources of the file systems and of coreutils' stat.
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

// The type of the folder's file system. If the folder does not exist yet, its nearest
// existing parent is used.
std::int64_t type_at(const fs::path& path) {
  struct statfs status {};
  for (fs::path at = fs::absolute(path);; at = at.parent_path()) {
    // f_type is signed and has 32 bits on some machines.
    if (::statfs(at.c_str(), &status) == 0) return static_cast<std::int64_t>(status.f_type) & 0xFFFFFFFF;
    if (at == at.parent_path()) return -1;
  }
}

RecorderMachine::Room room_at(const fs::path& folder) {
  struct statvfs status {};
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || ::access(folder.c_str(), W_OK | X_OK) != 0 ||
      ::statvfs(folder.c_str(), &status) != 0)
    return {};
  return {std::uint64_t{status.f_bavail} * status.f_frsize, std::uint64_t{status.f_blocks} * status.f_frsize};
}

// Space that is left for other users of a node's disk, for example Open MPI's session files.
std::uint64_t reserve_of(const RecorderMachine::Room& room) {
  constexpr std::uint64_t least = std::uint64_t{256} << 20, most = std::uint64_t{4} << 30;
  return std::clamp(room.all_bytes / 10, least, most);
}

bool has_room(const RecorderMachine::Room& room, std::uint64_t bytes) {
  const auto reserve = reserve_of(room);
  return room.free_bytes > reserve && room.free_bytes - reserve >= bytes;
}

fs::path folder_on_node(std::uint64_t bytes, const RecorderMachine& machine) {
  std::array<const char*, 4> candidates = {machine.environment("SLURM_TMPDIR"), machine.environment("TMPDIR"),
                                           "/tmp", "/dev/shm"};
  for (const char* folder : candidates)
    if (folder != nullptr && *folder != '\0' && !is_network_file_system(machine.file_system_type(folder)) &&
        has_room(machine.room(folder), bytes))
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

RecorderWish wished_place(const RecorderMachine& machine) {
  constexpr const char* variable = "FARANDOLE_RECORDER_DIR";
  const char* wish = machine.environment(variable);
  return wish != nullptr && *wish != '\0' ? RecorderWish{wish, variable} : RecorderWish{};
}

RecorderPlace place_recorder(const fs::path& run_dir, const RecorderWish& wish, std::uint64_t bytes,
                             const RecorderMachine& machine) {
  if (wish.place == "run") return {};
  if (wish.place == "auto") {
    if (!is_network_file_system(machine.file_system_type(run_dir))) return {};
    const auto folder = folder_on_node(bytes, machine);
    return {folder, !folder.empty()};
  }
  if (wish.place.empty() || machine.room(wish.place).free_bytes == 0)
    throw UserError(wish.said_by + " is '" + wish.place +
                    "', but this is not a writable folder with free space; give auto, run or such a folder");
  return {wish.place, false};
}

}  // namespace farandole
