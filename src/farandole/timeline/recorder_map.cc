#include "farandole/timeline/recorder_map.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "farandole/base/clock_id.h"
#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/node_file.h"

namespace farandole {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

std::int64_t realtime_ns() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

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
  header.start_realtime_ns = realtime_ns();
  header.rank = options.rank;
  header.world_size = options.world_size;
  header.clock = clock_id();
  header.process = static_cast<std::uint32_t>(::getpid());
  options.host.copy(header.host.data(), header.host.size() - 1);
  header.crc = static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(&header), offsetof(recorder::FixedHeader, crc)));
}

}  // namespace

std::unique_ptr<RecorderMap> RecorderMap::create(const TimelineOptions& options) {
  if (options.recorder_bytes < recorder::smallest_file)
    throw UserError("the recorder's bound of " + std::to_string(options.recorder_bytes) +
                    " bytes is too small: give " + std::to_string(recorder::smallest_file) +
                    " or more, or switch the timeline off");
  if (std::error_code failure; options.file.has_parent_path()) {
    std::filesystem::create_directories(options.file.parent_path(), failure);
    if (failure)
      throw Error("create folder " + options.file.parent_path().string() + ": " + failure.message());
  }
  const bool away = !options.node_folder.empty();
  // A new inode: an older file of this name may still be mapped by somebody.
  if (!away) forget_home(options.file);
  const auto path = away ? leave_home(options.file, options.node_folder) : options.file;
  const Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (file.fd < 0) {
    const Error error = system_error("create", path);
    forget_home(options.file);
    throw error;
  }
  const recorder::Geometry geometry(options.recorder_bytes);
  if (const int failure = ::posix_fallocate(file.fd, 0, static_cast<off_t>(geometry.file_bytes));
      failure != 0) {
    errno = failure;
    const Error error = system_error("allocate", path);
    forget_home(options.file);
    if (failure != ENOSPC && failure != EDQUOT && failure != EFBIG) throw error;
    spdlog::warn("no timeline is recorded: {} ({} bytes; make room or lower the recorder's bound)",
                 error.what(), geometry.file_bytes);
    return nullptr;
  }
  void* base = ::mmap(nullptr, geometry.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (base == MAP_FAILED) throw system_error("map", path);
  std::unique_ptr<RecorderMap> map(
      new RecorderMap(geometry, path, options.file, static_cast<std::byte*>(base)));
  map->header().step = -1;
  map->header().next_chunk = recorder::thread_slots;  // those before are reserved for the slots
  fill(map->header().fixed, geometry, options);
  return map;
}

RecorderMap::~RecorderMap() {
  std::atomic_ref(header().end_monotonic_ns).store(now_ns(), std::memory_order_release);
  ::munmap(base_, geometry.file_bytes);
  if (path == home_) return;
  try {
    bring_home(home_);
  } catch (const std::exception& error) {
    spdlog::warn("the recorder stays where only its node has it, at {}: {}", path.string(), error.what());
  }
}

}  // namespace farandole
