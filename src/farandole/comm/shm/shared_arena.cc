#include "farandole/comm/shm/shared_arena.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// ftruncate beyond the limit would raise SIGXFSZ.
void check_file_size_limit(std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
    throw Error(fmt::format("the limit on file sizes (ulimit -f, {} MiB) is too low", limit.rlim_cur >> 20));
}

}  // namespace

ArenaMapping::ArenaMapping(int fd, std::size_t bytes) : bytes_(bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED)
    throw Error(fmt::format("{} GiB of address space cannot be mapped: {}; check ulimit -v", bytes >> 30,
                            std::strerror(errno)));
  data_ = static_cast<std::byte*>(at);
  ::madvise(data_, bytes_, MADV_HUGEPAGE);  // the kernel grants this depending on /sys/…/shmem_enabled
  ::madvise(data_, bytes_, MADV_DONTDUMP);
}

ArenaMapping::~ArenaMapping() {
  ::munmap(data_, bytes_);
}

std::unique_ptr<ArenaMapping> map_peer(const ArenaAddress& address) {
  const auto path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw Error(fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  std::uint64_t token = 0;
  const bool ours = ::pread(fd, &token, sizeof token, 0) == sizeof token && token == address.token;
  std::unique_ptr<ArenaMapping> mapping;
  try {
    if (!ours) throw Error(path + " belongs to another process; the ranks may be in separate PID namespaces");
    mapping = std::make_unique<ArenaMapping>(fd, address.bytes);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  return mapping;
}

std::shared_ptr<SharedArena> SharedArena::create(std::size_t bytes, std::size_t reserved) {
  check_file_size_limit(bytes);
  const int fd = ::memfd_create("farandole", MFD_CLOEXEC);
  if (fd < 0) throw Error(fmt::format("memfd_create failed: {}", std::strerror(errno)));
  std::shared_ptr<SharedArena> arena;
  try {
    arena.reset(new SharedArena(fd, round_up(bytes, huge_page_bytes), round_up(reserved, huge_page_bytes)));
  } catch (...) {
    ::close(fd);
    throw;
  }
  return arena;
}

SharedArena::SharedArena(int fd, std::size_t bytes, std::size_t reserved) : fd_(fd) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    throw Error(
        fmt::format("shared memory of {} GiB cannot be created: {}", bytes >> 30, std::strerror(errno)));
  mapping_ = std::make_unique<ArenaMapping>(fd, bytes);
  used_[0] = reserved;
  used_[bytes] = 0;
  std::random_device random;
  token_ = (std::uint64_t{random()} << 32) | random() | 1u;
  if (::pwrite(fd, &token_, sizeof token_, 0) != sizeof token_)
    throw Error(fmt::format("shared memory cannot be written: {}", std::strerror(errno)));
}

SharedArena::~SharedArena() {
  close_descriptor();
}

ArenaAddress SharedArena::address() const {
  return {::getpid(), fd_, mapping_->bytes(), token_};
}

void SharedArena::close_descriptor() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Buffer SharedArena::allocate(std::size_t bytes) {
  const std::size_t wanted = round_up(std::max<std::size_t>(bytes, 1), page_bytes);
  const std::size_t step = wanted >= huge_page_bytes ? huge_page_bytes : page_bytes;
  const std::lock_guard lock(mutex_);
  for (auto block = used_.begin(), next = std::next(block); next != used_.end(); block = next++) {
    const std::size_t offset = round_up(block->first + block->second, step);
    if (offset + wanted > next->first) continue;
    // Touching the pages here reports a lack of memory as an error. At first use it would be a SIGBUS.
    if (::madvise(data() + offset, wanted, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return {};
    used_.emplace(offset, wanted);
    return Buffer(data() + offset,
                  [arena = shared_from_this(), offset](std::byte*) { arena->release(offset); });
  }
  return {};
}

void SharedArena::release(std::size_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(offset);
  // Returns the pages to the kernel. Afterwards, every process that has mapped them reads zeros.
  if (::madvise(data() + offset, block->second, MADV_REMOVE) != 0)
    std::memset(data() + offset, 0, block->second);
  used_.erase(block);
}

std::optional<std::size_t> SharedArena::offset_of(const void* data, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  if (at < mapping_->data() || at + bytes > mapping_->data() + mapping_->bytes()) return std::nullopt;
  return static_cast<std::size_t>(at - mapping_->data());
}

}  // namespace farandole
