#include "farandole/timeline/gpu/cupti/activity_buffers.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

constexpr std::size_t most_kept = 8;  // buffers; ten steps of a large model fill two

std::uint8_t* fresh_buffer() {
  return static_cast<std::uint8_t*>(std::aligned_alloc(8, ActivityBuffers::bytes));
}

}  // namespace

ActivityBuffers::ActivityBuffers(std::function<void(const Filled&)> read, std::function<void()> flush)
    : read_(std::move(read)), give_all_(std::move(flush)), thread_(start_quiet_thread([this] { run(); })) {}

ActivityBuffers::~ActivityBuffers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (auto* const buffer : free_) std::free(buffer);
}

std::uint8_t* ActivityBuffers::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto* const buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
  }
  return fresh_buffer();
}

void ActivityBuffers::give(const Filled& filled) {
  {
    const std::lock_guard lock(mutex_);
    filled_.push_back(filled);
  }
  changed_.notify_one();
}

void ActivityBuffers::flush_soon() {
  {
    const std::lock_guard lock(mutex_);
    flush_ = true;
  }
  changed_.notify_one();
}

void ActivityBuffers::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return is_idle(); });
}

void ActivityBuffers::stock() {
  for (std::size_t i = 0; i < most_kept; ++i) {
    auto* const buffer = fresh_buffer();
    if (buffer == nullptr) return;
    std::memset(buffer, 0, bytes);
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
  }
}

void ActivityBuffers::run() {
  give_way();
  stock();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !is_idle(); });
    if (filled_.empty() && !flush_) return;
    reading_ = true;
    if (std::exchange(flush_, false)) {
      lock.unlock();
      give_all_();
      lock.lock();
    } else {
      const auto filled = filled_.front();
      filled_.pop_front();
      lock.unlock();
      read_(filled);
      lock.lock();
      if (free_.size() < most_kept)
        free_.push_back(filled.buffer);
      else
        std::free(filled.buffer);
    }
    reading_ = false;
    if (is_idle()) idle_.notify_all();
  }
}

}  // namespace farandole
