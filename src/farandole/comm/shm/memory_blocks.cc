#include "farandole/comm/shm/memory_blocks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/shm/shared_arena.h"

namespace farandole {
namespace {

constexpr std::size_t block_alignment = 64 << 10;  // bytes of the largest page of all machines

// Maps the file copy-on-write, at `place` unless it is null.
// Throws: Error if this fails.
std::byte* map_private(std::byte* place, std::size_t bytes, int fd) {
  const int flags = MAP_PRIVATE | MAP_NORESERVE | (place != nullptr ? MAP_FIXED : 0);
  void* const at = ::mmap(place, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED)
    throw Error(fmt::format("shared memory cannot be mapped copy-on-write: {}", std::strerror(errno)));
  ::madvise(at, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(at);
}

// Linux shows pages of a private mapping as the file has them until the process writes to them.
class CopyOnWriteMapping {
 public:
  // `fd` must stay open as long as drop_changes() is called.
  // Throws: Error if this fails.
  CopyOnWriteMapping(int fd, std::size_t bytes)
      : file_(fd),
        pages_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)),
        page_bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        bytes_(bytes) {
    if (pages_.get() < 0)
      throw Error(fmt::format("/proc/self/pagemap cannot be read: {}", std::strerror(errno)));
    data_ = map_private(nullptr, bytes_, file_);
  }
  ~CopyOnWriteMapping() { ::munmap(data_, bytes_); }
  CopyOnWriteMapping(const CopyOnWriteMapping&) = delete;
  CopyOnWriteMapping& operator=(const CopyOnWriteMapping&) = delete;

  std::byte* data() const { return data_; }

  // Documentation/admin-guide/mm/pagemap.rst of Linux says what the bits mean.
  bool has_changes() const {
    constexpr std::uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61;
    const auto is_own = [](std::uint64_t page) {
      return (page & (present | swapped)) != 0 && (page & of_file) == 0;
    };
    std::array<std::uint64_t, 2048> entries;
    const auto first = reinterpret_cast<std::uintptr_t>(data_) / page_bytes_;
    for (std::size_t done = 0, count = bytes_ / page_bytes_; done < count;) {
      const auto wanted = std::min(entries.size(), count - done) * sizeof entries[0];
      const auto got = ::pread(pages_.get(), entries.data(), wanted,
                               static_cast<off_t>((first + done) * sizeof entries[0]));
      if (got < static_cast<ssize_t>(sizeof entries[0])) return true;  // It cannot be excluded.
      const auto known = static_cast<std::size_t>(got) / sizeof entries[0];
      if (std::any_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(known), is_own))
        return true;
      done += known;
    }
    return false;
  }

  void drop_changes() { map_private(data_, bytes_, file_); }

 private:
  int file_;
  OwnedDescriptor pages_;
  std::size_t page_bytes_, bytes_;
  std::byte* data_ = nullptr;
};

class MemoryBlocks final : public NodeBlocks {
 public:
  // A negative descriptor gives memory of this process.
  MemoryBlocks(OwnedDescriptor memory, std::span<const std::size_t> bytes)
      : memory_(std::move(memory)), mapping_(memory_.get(), total(bytes)) {
    blocks_ = places(mapping_.data(), bytes);
  }

  void use_blocks_as_views() { views_ = blocks_; }
  // `rank` of fewer than `block_alignment` on the node.
  // Throws: Error if views do not work here.
  void make_views(std::span<const std::size_t> bytes, std::size_t rank) {
    view_.emplace(memory_.get(), mapping_.bytes());
    views_ = places(view_->data(), bytes);
    // Behind all blocks, each rank has a byte for a trial.
    auto& shared = mapping_.data()[total(bytes) - block_alignment + rank];
    auto& own = view_->data()[total(bytes) - block_alignment + rank];
    const auto is = [](const volatile std::byte& byte, int value) {
      return std::to_integer<int>(byte) == value;
    };
    bool works = is(own, 0) && !has_changes();
    shared = std::byte{1};
    works = works && is(own, 1) && !has_changes();
    own = std::byte{2};
    works = works && is(shared, 1) && has_changes();
    drop_changes();
    if (!works || !is(own, 1) || has_changes())
      throw Error("this system does not tell which memory a process has changed (/proc/self/pagemap)");
  }

  bool has_changes() const override { return view_ && view_->has_changes(); }
  void drop_changes() override {
    if (view_) view_->drop_changes();
  }

  static std::size_t total(std::span<const std::size_t> bytes) {
    std::size_t sum = block_alignment;
    for (const auto size : bytes) sum += whole_pages(size);
    return sum;
  }

  // Pages that this rank does not write remain those of the file.
  void make_private() override {
    if (memory_.get() < 0) return;
    map_private(mapping_.data(), mapping_.bytes(), memory_.get());
    memory_.reset();
  }

 private:
  static std::size_t whole_pages(std::size_t bytes) {
    return (bytes + block_alignment - 1) / block_alignment * block_alignment;
  }
  static std::vector<std::byte*> places(std::byte* begin, std::span<const std::size_t> bytes) {
    std::vector<std::byte*> result;
    for (const auto size : bytes) {
      result.push_back(begin);
      begin += whole_pages(size);
    }
    return result;
  }

  OwnedDescriptor memory_;
  ArenaMapping mapping_;
  std::optional<CopyOnWriteMapping> view_;
};

void touch_part(const NodeBlocks& memory, std::span<const std::size_t> bytes, int rank, int ranks) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const auto [first, last] = NodeSharing::node_part(bytes[b], 1, rank, ranks);
    const std::size_t begin = first / page * page;
    // At first use, a lack of memory would be a SIGBUS. Old kernels do not know the advice.
    if (begin < last && ::madvise(memory.blocks()[b] + begin, last - begin, MADV_POPULATE_WRITE) != 0 &&
        errno != EINVAL)
      throw Error(fmt::format("{} MiB of shared memory cannot be had: {}", (last - begin) >> 20,
                              std::strerror(errno)));
  }
}

}  // namespace

std::shared_ptr<NodeBlocks> share_blocks(Communicator& node, std::span<const std::size_t> bytes,
                                         Views views) {
  std::array<char, 256> reason{};
  const auto attempt = [&](auto work) {
    try {
      work();
    } catch (const Error& error) {
      std::string_view(error.what()).copy(reason.data(), reason.size() - 1);
    }
  };
  OwnedDescriptor memory;
  ArenaAddress address;
  if (node.rank == 0)
    attempt([&] {
      memory = create_memory(MemoryBlocks::total(bytes), address.token);
      address.pid = ::getpid();
      address.fd = memory.get();
    });
  node.broadcast("address of shared memory", &address, sizeof address, 0);
  std::shared_ptr<MemoryBlocks> blocks;
  attempt([&] {
    if (address.fd < 0) return;
    if (node.rank > 0) memory = open_peer(address);
    blocks = std::make_shared<MemoryBlocks>(std::move(memory), bytes);
    touch_part(*blocks, bytes, node.rank, node.size);
    if (views == Views::yes) blocks->make_views(bytes, static_cast<std::size_t>(node.rank));
  });
  // After this exchange, all ranks have mapped the memory.
  std::vector<decltype(reason)> reasons(static_cast<std::size_t>(node.size));
  node.all_gather("reasons against shared memory", reason.data(), reasons.data(),
                  std::vector<std::size_t>(reasons.size(), sizeof reason));
  for (const auto& first : reasons)
    if (first[0] != 0) throw Error(first.data());
  if (node.rank == 0) std::memset(blocks->blocks().front(), 0, sizeof address.token);
  node.barrier();  // Before any rank writes where the token was.
  return blocks;
}

std::shared_ptr<NodeBlocks> blocks_of_one(std::span<const std::size_t> bytes) {
  auto blocks = std::make_shared<MemoryBlocks>(OwnedDescriptor(), bytes);
  blocks->use_blocks_as_views();
  return blocks;
}

}  // namespace farandole
