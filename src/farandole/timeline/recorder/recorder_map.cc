#include "farandole/timeline/recorder/recorder_map.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/log.h"
#include "farandole/timeline/recorder/recorder_cut.h"

namespace farandole {
namespace {

// The disk or quota is full. This is logged and does not end the program.
struct NoRoom : Error {
  explicit NoRoom(const Error& why) : Error(why) {}
};

// Reports the system call that has just set errno.
[[noreturn]] void fail(const std::string& call, const std::filesystem::path& path) {
  const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  const Error error = system_error(call, path);
  if (full) throw NoRoom(error);
  throw error;
}

// The file gets a new inode, because another process may still have an older file of this name mapped.
std::filesystem::path without_staging(const std::filesystem::path& destination) {
  forget_staged(destination);
  return destination;
}

// Removes the file unless it is completed.
class NewFile {
 public:
  NewFile(const std::filesystem::path& destination, const std::filesystem::path& node_folder)
      : destination_(destination),
        path_(node_folder.empty() ? without_staging(destination) : stage_in(destination, node_folder)),
        // A folder of the node, such as /tmp, is open to all users.
        fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, node_folder.empty() ? 0666 : 0600)) {
  }
  ~NewFile() {
    if (!kept_) forget_staged(destination_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Throws: NoRoom if disk or quota is full, Error if another problem occurs.
  std::byte* map(std::size_t bytes) const {
    if (fd_.get() < 0) fail("create", path_);
    const bool within_limit = bytes <= file_size_limit().value_or(bytes);
    errno = within_limit ? ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes)) : EFBIG;
    if (errno != 0) fail("allocate " + std::to_string(bytes) + " bytes of", path_);
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (base == MAP_FAILED) fail("map", path_);
    return static_cast<std::byte*>(base);
  }
  OwnedDescriptor keep() {
    kept_ = true;
    return std::move(fd_);
  }

 private:
  const std::filesystem::path& destination_;
  const std::filesystem::path path_;
  OwnedDescriptor fd_;
  bool kept_ = false;
};

void fill(recorder::FixedHeader& header, const recorder::Geometry& geometry, const TimelineOptions& options) {
  header.magic = recorder::magic;
  header.byte_order = recorder::byte_order;
  header.version = recorder::version;
  header.record_bytes = sizeof(Record);
  header.thread_slots = recorder::thread_slots;
  header.chunk_count = recorder::chunk_count;
  header.chunk_records = geometry.chunk_records;
  header.threads_offset = geometry.threads_offset;
  header.names_offset = geometry.names_offset;
  header.names_bytes = geometry.names_bytes;
  header.chunks_offset = geometry.chunks_offset;
  header.file_bytes = geometry.file_bytes;
  header.start_monotonic_ns = now_ns();
  header.start_realtime_ns = real_time_ns();
  header.rank = options.rank;
  header.world_size = options.world_size;
  header.clock = clock_id();
  header.process = static_cast<std::uint32_t>(::getpid());
  options.host.copy(header.host.data(), header.host.size() - 1);
  header.crc = crc_of(header);
}

}  // namespace

std::unique_ptr<RecorderMap> RecorderMap::create(const TimelineOptions& options) {
  if (options.recorder_bytes < recorder::smallest_file)
    throw UserError("the recorder's size limit of " + std::to_string(options.recorder_bytes) +
                    " bytes is too small; give " + std::to_string(recorder::smallest_file) +
                    " or more, or switch the timeline off");
  if (std::error_code failure; options.file.has_parent_path()) {
    std::filesystem::create_directories(options.file.parent_path(), failure);
    if (failure)
      throw Error("create folder " + options.file.parent_path().string() + ": " + failure.message());
  }
  const bool may_skip_staging = options.node_folder_chosen && !options.node_folder.empty();
  try {
    return map_new(options);
  } catch (const NoRoom& full) {
    if (!may_skip_staging) {
      log_warning(
          "no timeline is recorded: {}; free some space there, record to another folder "
          "(--recorder-dir or FARANDOLE_RECORDER_DIR), or lower the recorder's size limit (--recorder-mb)",
          full.what());
      return nullptr;
    }
    log_warning("the recorder's file is written directly in the run directory: {}", full.what());
  }
  auto without_staging_options = options;
  without_staging_options.node_folder.clear();
  return create(without_staging_options);
}

std::unique_ptr<RecorderMap> RecorderMap::map_new(const TimelineOptions& options) {
  NewFile file(options.file, options.node_folder);
  const recorder::Geometry geometry(options.recorder_bytes);
  std::byte* const base = file.map(geometry.file_bytes);
  std::unique_ptr<RecorderMap> map(new RecorderMap(geometry, file.path(), options.file, file.keep(), base));
  // Copies of a file on the node lock it while they read it.
  if (map->path == options.file) protect_recorder(map->fd_.get());
  map->header().step = -1;
  map->header().next_chunk = recorder::thread_slots;  // the chunks before it are reserved for the slots
  fill(map->header().fixed, geometry, options);
  return map;
}

RecorderMap::~RecorderMap() {
  std::atomic_ref(header().end_monotonic_ns).store(now_ns(), std::memory_order_release);
  ::munmap(base_, geometry.file_bytes);
  fd_.reset();
  if (left_to_parent_) return;
  cut_recorder(path);
  if (path == destination_) return;
  try {
    if (stage_out(destination_)) cut_recorder(destination_);
  } catch (const std::exception& error) {
    log_warning("the recorder's file could not be copied and stays on this node, at {}: {}", path.string(),
                error.what());
  }
}

// The header is kept, because it says how much is full.
void RecorderMap::leave_to_parent() {
  left_to_parent_ = true;
  fd_.reset();
  const auto header_now = std::make_unique<recorder::Header>(header());
  ::mmap(base_, geometry.file_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  header() = *header_now;
}

}  // namespace farandole
