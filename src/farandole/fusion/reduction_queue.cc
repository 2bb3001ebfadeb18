#include "farandole/fusion/reduction_queue.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace farandole {
namespace {

class CallerDrivenQueue : public ReductionQueue {
 public:
  CallerDrivenQueue(std::function<void(std::size_t)> start, NonblockingAllreduce& allreduce,
                    Timeline& timeline)
      : start_(std::move(start)), allreduce_(allreduce), timeline_(timeline) {}

  void push() override {
    ++pushed_;
    start_next();
  }

  void poll() override {
    while (in_flight_ && allreduce_.test()) {
      in_flight_ = false;
      ++reduced_;
      start_next();
    }
  }

  void await(std::size_t buckets) override {
    poll();
    if (reduced_ >= buckets) return;
    const Span span(timeline_, Category::wait, "wait for gradients");
    while (reduced_ < buckets) {
      allreduce_.wait();
      in_flight_ = false;
      ++reduced_;
      start_next();
    }
  }

  void restart() override { pushed_ = reduced_ = 0; }

 private:
  void start_next() {
    if (in_flight_ || reduced_ == pushed_) return;
    start_(reduced_);
    in_flight_ = true;
  }

  const std::function<void(std::size_t)> start_;
  NonblockingAllreduce& allreduce_;
  Timeline& timeline_;
  std::size_t pushed_ = 0;
  std::size_t reduced_ = 0;
  bool in_flight_ = false;
};

class ThreadQueue : public ReductionQueue {
 public:
  ThreadQueue(std::function<void(std::size_t)> reduce, Communicator& communicator, Timeline& timeline)
      : reduce_(std::move(reduce)), communicator_(communicator), timeline_(timeline) {
    tell();
    thread_ = std::thread([this] { run(); });
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  void push() override {
    {
      const std::lock_guard lock(mutex_);
      ++pushed_;
      tell();
    }
    work_.notify_one();
  }

  void poll() override {}

  void await(std::size_t buckets) override {
    std::unique_lock lock(mutex_);
    awaited_ = buckets;
    const auto there = [this] { return reduced_ >= awaited_ || failure_ != nullptr; };
    if (!there()) {
      const Span span(timeline_, Category::wait, "wait for gradients");
      is_awaited_ = true;
      tell();
      done_.wait(lock, there);
    }
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

  void restart() override {
    const std::lock_guard lock(mutex_);
    pushed_ = reduced_ = awaited_ = 0;
  }

 private:
  void tell() { communicator_.note_servant(reduced_ < pushed_, is_awaited_); }
  void run() {
    timeline_.name_thread("communication");
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stop_ || reduced_ < pushed_; });
      if (stop_) return;
      const std::size_t bucket = reduced_;
      lock.unlock();
      std::exception_ptr failure;
      try {
        reduce_(bucket);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      const bool is_done = ++reduced_ == awaited_ || failure != nullptr;
      // Said here, because the next collective may begin before the other thread has woken up.
      if (is_done) is_awaited_ = false;
      tell();
      if (is_done) done_.notify_one();
      if (failure != nullptr) return;
    }
  }

  const std::function<void(std::size_t)> reduce_;
  Communicator& communicator_;
  Timeline& timeline_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::size_t pushed_ = 0;
  std::size_t reduced_ = 0;
  std::size_t awaited_ = 0;  // wake the waiting thread when this number is reduced
  bool is_awaited_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ReductionQueue> reduce_from_caller(std::function<void(std::size_t)> start,
                                                   NonblockingAllreduce& allreduce, Timeline& timeline) {
  return std::make_unique<CallerDrivenQueue>(std::move(start), allreduce, timeline);
}

std::unique_ptr<ReductionQueue> reduce_on_thread(std::function<void(std::size_t)> reduce,
                                                 Communicator& communicator, Timeline& timeline) {
  return std::make_unique<ThreadQueue>(std::move(reduce), communicator, timeline);
}

}  // namespace farandole
