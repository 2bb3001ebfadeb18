#include "farandole/fusion/reduction_queue.h"

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

}  // namespace

std::unique_ptr<ReductionQueue> reduce_from_caller(std::function<void(std::size_t)> start,
                                                   NonblockingAllreduce& allreduce, Timeline& timeline) {
  return std::make_unique<CallerDrivenQueue>(std::move(start), allreduce, timeline);
}

}  // namespace farandole
