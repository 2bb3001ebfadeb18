#include "farandole/comm/gpu/gpu_staging.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t chunk_bytes = std::size_t{8} << 20;
// The thread that waits has nothing else to do, and a copy of a whole model takes many milliseconds.
constexpr auto poll_interval = std::chrono::microseconds(200);

}  // namespace

struct GpuStaging::Memory {
  explicit Memory(std::shared_ptr<const GpuRuntime> own)
      : runtime(std::move(own)), stream(runtime), written(runtime), copied(runtime) {}
  ~Memory() { end_preparation(); }

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

  void grow() { chunks.push_back(runtime->allocate_pinned(chunk_bytes)); }
  std::size_t capacity() const { return chunks.size() * chunk_bytes; }

  void prepare(std::size_t bytes, int device) {
    if (preparing.joinable() || !chunks.empty()) return;
    preparing = start_quiet_thread([this, bytes, device] {
      give_way();
      try {
        runtime->use(device);
        while (capacity() < bytes) {
          const auto begin = std::chrono::steady_clock::now();
          grow();
          // Other threads need three quarters of the time for their launches.
          if (!stop.sleep(3 * (std::chrono::steady_clock::now() - begin))) return;
        }
      } catch (const Error&) {  // start() will say so
      }
    });
  }
  void end_preparation() {
    stop.stop();
    if (preparing.joinable()) preparing.join();
  }
  void reserve(std::size_t bytes) {
    end_preparation();
    while (capacity() < bytes) grow();
  }

  const std::shared_ptr<const GpuRuntime> runtime;
  const GpuStream stream;
  GpuEvent written, copied;
  std::vector<Buffer> chunks;  // of the preparing thread until it ends, and then of the training thread
  StopEvent stop;
  std::thread preparing;
  std::mutex mutex;
  std::condition_variable returned;
  bool taken = false;
};

template <class Visit>
void GpuStaging::Copies::visit_parts(std::size_t index, Visit visit) const {
  for (std::size_t done = 0; done < bytes_[index];) {
    const auto at = offsets_[index] + done;
    const auto part = std::min(bytes_[index] - done, chunk_bytes - at % chunk_bytes);
    visit(memory_->chunks[at / chunk_bytes].get() + at % chunk_bytes, done, part);
    done += part;
  }
}

GpuStaging::GpuStaging(std::shared_ptr<const GpuRuntime> runtime)
    : memory_(std::make_shared<Memory>(std::move(runtime))) {}

GpuStaging::~GpuStaging() = default;

void GpuStaging::prepare(std::size_t bytes, int device) {
  memory_->prepare(bytes, device);
}

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
      copies->visit_parts(i, [&](std::byte* to, std::size_t done, std::size_t bytes) {
        memory.runtime->copy(to, static_cast<const std::byte*>(pieces[i].from) + done, bytes, stream);
      });
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

void GpuStaging::Copies::read(std::size_t index, std::byte* to) const {
  visit_parts(index, [&](const std::byte* from, std::size_t done, std::size_t bytes) {
    copy_bytes(to + done, from, bytes);
  });
}

}  // namespace farandole
