#include "farandole/comm/shm/memory_blocks.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/shm/shared_arena.h"

namespace farandole {
namespace {

constexpr std::size_t block_alignment = 64 << 10;  // bytes of the largest page of all machines

class MemoryBlocks final : public NodeBlocks {
 public:
  // A negative descriptor gives memory of this process.
  MemoryBlocks(OwnedDescriptor memory, std::span<const std::size_t> bytes)
      : memory_(std::move(memory)), mapping_(memory_.get(), total(bytes)) {
    std::size_t offset = 0;
    for (const auto size : bytes) {
      blocks_.push_back(mapping_.data() + offset);
      offset += whole_pages(size);
    }
  }

  static std::size_t total(std::span<const std::size_t> bytes) {
    std::size_t sum = block_alignment;
    for (const auto size : bytes) sum += whole_pages(size);
    return sum;
  }

  // Pages that this rank does not write remain those of the file.
  void make_private() override {
    if (memory_.get() < 0) return;
    constexpr int flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
    if (::mmap(mapping_.data(), mapping_.bytes(), PROT_READ | PROT_WRITE, flags, memory_.get(), 0) ==
        MAP_FAILED)
      throw Error(fmt::format("shared memory cannot be made private: {}", std::strerror(errno)));
    memory_.reset();
  }

 private:
  static std::size_t whole_pages(std::size_t bytes) {
    return (bytes + block_alignment - 1) / block_alignment * block_alignment;
  }

  OwnedDescriptor memory_;
  ArenaMapping mapping_;
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

std::shared_ptr<NodeBlocks> share_blocks(Communicator& node, std::span<const std::size_t> bytes) {
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
  return std::make_shared<MemoryBlocks>(OwnedDescriptor(), bytes);
}

}  // namespace farandole
