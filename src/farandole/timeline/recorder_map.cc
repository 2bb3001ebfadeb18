#include "farandole/timeline/recorder_map.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/log.h"

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
  // A new inode: an older file of this name may still be mapped by somebody.
  ::unlink(options.file.c_str());
  const Descriptor file{::open(options.file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (file.fd < 0) throw system_error("create", options.file);
  const recorder::Geometry geometry(options.recorder_bytes);
  if (const int failure = ::posix_fallocate(file.fd, 0, static_cast<off_t>(geometry.file_bytes));
      failure != 0) {
    errno = failure;
    const Error error = system_error("allocate", options.file);
    ::unlink(options.file.c_str());
    if (failure != ENOSPC && failure != EDQUOT && failure != EFBIG) throw error;
    spdlog::warn("no timeline is recorded: {} ({} bytes; make room or lower the recorder's bound)",
                 error.what(), geometry.file_bytes);
    return nullptr;
  }
  void* base = ::mmap(nullptr, geometry.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (base == MAP_FAILED) throw system_error("map", options.file);
  std::unique_ptr<RecorderMap> map(new RecorderMap(geometry, static_cast<std::byte*>(base)));
  map->header().step = -1;
  map->header().next_chunk = recorder::thread_slots;  // those before are reserved for the slots
  fill(map->header().fixed, geometry, options);
  return map;
}

RecorderMap::~RecorderMap() {
  std::atomic_ref(header().end_monotonic_ns).store(now_ns(), std::memory_order_release);
  ::munmap(base_, geometry.file_bytes);
}

}  // namespace farandole
