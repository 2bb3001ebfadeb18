#include "farandole/timeline/recorder/recorder_cut.h"

#include <exception>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

// A lock of the open file, not of the process: it lasts until the last descriptor is closed.
bool lock(int fd, short kind) {
  struct flock whole {};
  whole.l_type = kind;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

}  // namespace

void protect_recorder(int fd) noexcept {
  lock(fd, F_RDLCK);
}

bool claim_file(int fd) noexcept {
  return lock(fd, F_WRLCK);
}

bool cut_recorder(const std::filesystem::path& path) noexcept try {
  const OwnedDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat before {};
  if (file.get() < 0 || !claim_file(file.get()) || ::fstat(file.get(), &before) != 0) return false;
  const RecorderFile reader(path);
  if (!reader.problems().empty()) return false;
  off_t end = 0;
  for (const auto& [begin, used_end] : reader.used()) {
    const auto gap = static_cast<off_t>(begin) - end;
    if (gap > 0) ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, gap);
    end = static_cast<off_t>(used_end);
  }
  const bool cut = before.st_size <= end || ::ftruncate(file.get(), end) == 0;
  const timespec times[] = {{0, UTIME_OMIT}, before.st_mtim};
  ::futimens(file.get(), times);
  return cut;
} catch (const std::exception&) {
  return false;
}

void cut_recorders(const std::filesystem::path& run_dir, int part, int parts) noexcept try {
  std::error_code ignored;
  for (const auto& file : staged_files_in(run_dir / "recorder", ".ftl", ignored))
    if (const auto rank = rank_of_recorder(file); rank && *rank % parts == part) cut_recorder(file);
} catch (const std::exception&) {
}

}  // namespace farandole
