#include "farandole/comm/shm/shared_arena.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"

namespace farandole {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

void check_file_size_limit(std::size_t bytes) {
  if (const auto limit = file_size_limit(); limit && *limit < bytes)
    throw Error(fmt::format("the limit on file sizes (ulimit -f, {} MiB) is too low", *limit >> 20));
}

using Reason = std::array<char, 256>;

std::size_t default_bytes(int size) {
  const auto memory =
      static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  // Of 128 TiB address space.
  return std::min(memory, (std::size_t{16} << 40) / static_cast<std::size_t>(size));
}

// Stores the message if `work` throws.
template <class Work>
void attempt(Reason& reason, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (reason[0] == 0) std::string_view(error.what()).copy(reason.data(), reason.size() - 1);
  }
}

}  // namespace

ArenaMapping::ArenaMapping(int fd, std::size_t bytes) : bytes_(bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
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

OwnedDescriptor create_memory(std::size_t bytes, std::uint64_t& token) {
  check_file_size_limit(bytes);
  OwnedDescriptor memory(::memfd_create("farandole", MFD_CLOEXEC));
  if (memory.get() < 0) throw Error(fmt::format("memfd_create failed: {}", std::strerror(errno)));
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    throw Error(
        fmt::format("shared memory of {} GiB cannot be created: {}", bytes >> 30, std::strerror(errno)));
  std::random_device random;
  token = (std::uint64_t{random()} << 32) | random() | 1u;
  if (::pwrite(memory.get(), &token, sizeof token, 0) != sizeof token)
    throw Error(fmt::format("shared memory cannot be written: {}", std::strerror(errno)));
  return memory;
}

OwnedDescriptor open_peer(const ArenaAddress& address) {
  const auto path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  OwnedDescriptor memory(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (memory.get() < 0) throw Error(fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  std::uint64_t token = 0;
  if (::pread(memory.get(), &token, sizeof token, 0) != sizeof token || token != address.token)
    throw Error(path + " belongs to another process; the ranks may be in separate PID namespaces");
  return memory;
}

std::unique_ptr<ArenaMapping> map_peer(const ArenaAddress& address) {
  return std::make_unique<ArenaMapping>(open_peer(address).get(), address.bytes);
}

std::shared_ptr<SharedArena> SharedArena::create(std::size_t bytes, std::size_t reserved) {
  return std::shared_ptr<SharedArena>(
      new SharedArena(round_up(bytes, huge_page_bytes), round_up(reserved, huge_page_bytes)));
}

SharedArena::SharedArena(std::size_t bytes, std::size_t reserved)
    : memory_(create_memory(bytes, token_)), mapping_(std::make_unique<ArenaMapping>(memory_.get(), bytes)) {
  used_[0] = reserved;
  used_[bytes] = 0;
}

ArenaAddress SharedArena::address() const {
  return {::getpid(), memory_.get(), mapping_->bytes(), token_};
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

NodeMemory::NodeMemory(Communicator& bootstrap, std::size_t reserved, std::size_t arena_bytes)
    : mappings_(static_cast<std::size_t>(bootstrap.size)), bases_(mappings_.size()), pids_(mappings_.size()) {
  const std::size_t ranks = mappings_.size();
  Reason reason{};
  ArenaAddress own;
  attempt(reason, [&] {
    arena_ = SharedArena::create(arena_bytes != 0 ? arena_bytes : default_bytes(bootstrap.size), reserved);
    own = arena_->address();
  });
  std::vector<ArenaAddress> addresses(ranks);
  bootstrap.all_gather("addresses of shared memory", &own, addresses.data(),
                       std::vector<std::size_t>(ranks, sizeof own));
  for (std::size_t r = 0; r < ranks; ++r) {
    pids_[r] = static_cast<pid_t>(addresses[r].pid);
    if (static_cast<int>(r) == bootstrap.rank || addresses[r].fd < 0) continue;
    attempt(reason, [&] {
      mappings_[r] = map_peer(addresses[r]);
      bases_[r] = mappings_[r]->data();
    });
  }
  // After this exchange, all ranks have mapped all arenas.
  std::vector<Reason> reasons(ranks);
  bootstrap.all_gather("reasons against shared memory", reason.data(), reasons.data(),
                       std::vector<std::size_t>(ranks, sizeof reason));
  for (std::size_t r = 0; r < ranks; ++r)
    if (reasons[r][0] != 0) throw Error(fmt::format("process {}: {}", addresses[r].pid, reasons[r].data()));
  arena_->close_descriptor();
  bases_[static_cast<std::size_t>(bootstrap.rank)] = arena_->data();
}

Buffer NodeMemory::allocate(std::size_t bytes) const {
  if (auto buffer = arena_->allocate(bytes)) return buffer;
  return private_memory(bytes);
}

}  // namespace farandole
