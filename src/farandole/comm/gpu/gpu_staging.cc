#include "farandole/comm/gpu/gpu_staging.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::size_t alignment = 256;
// The thread that waits has nothing else to do, and a copy of a whole model takes many milliseconds.
constexpr auto poll_interval = std::chrono::microseconds(200);

}  // namespace

struct GpuStaging::Memory {
  explicit Memory(std::shared_ptr<const GpuRuntime> own)
      : runtime(std::move(own)), stream(runtime), written(runtime), copied(runtime) {}

  void take() {
    std::unique_lock lock(mutex);
    returned.wait(lock, [this] { return !taken; });
    taken = true;
  }
  void give_back() {
    const std::lock_guard lock(mutex);
    taken = false;
    returned.notify_one();
  }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity) return;
    pinned.reset();
    capacity = 0;
    pinned = runtime->allocate_pinned(bytes);
    capacity = bytes;
  }

  const std::shared_ptr<const GpuRuntime> runtime;
  const GpuStream stream;
  GpuEvent written, copied;
  Buffer pinned;
  std::size_t capacity = 0;
  std::mutex mutex;
  std::condition_variable returned;
  bool taken = false;
};

GpuStaging::GpuStaging(std::shared_ptr<const GpuRuntime> runtime)
    : memory_(std::make_shared<Memory>(std::move(runtime))) {}

GpuStaging::~GpuStaging() = default;

std::shared_ptr<const GpuStaging::Copies> GpuStaging::start(std::span<const Piece> pieces,
                                                            CUstream_st* writer) {
  auto& memory = *memory_;
  memory.take();
  const auto copies = std::make_shared<const Copies>(memory_, pieces);
  auto* const stream = memory.stream.handle();
  memory.written.record(writer);
  memory.written.hold(stream);
  try {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      memory.runtime->copy(const_cast<std::byte*>(copies->piece(i).data()), pieces[i].from, pieces[i].bytes,
                           stream);
  } catch (...) {
    memory.copied.record(stream);  // the destructor of the copies waits for those that were queued
    throw;
  }
  memory.copied.record(stream);
  to_hold_ = true;
  return copies;
}

void GpuStaging::hold(CUstream_st* writer) {
  if (std::exchange(to_hold_, false)) memory_->copied.hold(writer);
}

GpuStaging::Copies::Copies(std::shared_ptr<Memory> memory, std::span<const Piece> pieces)
    : memory_(std::move(memory)) {
  std::size_t end = 0;
  for (const auto& piece : pieces) {
    offsets_.push_back(end);
    bytes_.push_back(piece.bytes);
    end += (piece.bytes + alignment - 1) / alignment * alignment;
  }
  try {
    memory_->reserve(end);
  } catch (...) {
    memory_->give_back();
    throw;
  }
}

GpuStaging::Copies::~Copies() {
  try {
    wait();
  } catch (const Error&) {  // a device that has failed writes no more
  }
  memory_->give_back();
}

void GpuStaging::Copies::wait() const {
  while (!memory_->copied.reached()) std::this_thread::sleep_for(poll_interval);
}

std::span<const std::byte> GpuStaging::Copies::piece(std::size_t index) const {
  return {memory_->pinned.get() + offsets_[index], bytes_[index]};
}

}  // namespace farandole
