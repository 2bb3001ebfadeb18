// How fast one launch packs the gradients of a bucket, against a copy of the same bytes on the device in the
// same run. The tensors are those of GPT-2 with 124 million parameters. Prints one line of JSON.
#include <algorithm>
#include <fmt/format.h>
#include <thread>
#include <vector>

#include "gpu/speed.h"

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/program.h"
#include "farandole/comm/gpu/gpu_kernels.h"

namespace farandole {
namespace {

// Gradients that lie elsewhere, their buckets, and what a launch for each bucket needs.
class Packing {
 public:
  Packing(std::shared_ptr<const GpuRuntime> runtime, const BucketPlan& plan)
      : runtime_(std::move(runtime)), kernels_(runtime_), stream_(runtime_) {
    for (const auto& bucket : plan.buckets) {
      auto& own = buckets_.emplace_back();
      own.memory = runtime_->allocate(bucket.bytes());
      for (const auto& slot : bucket.slots) {
        const auto bytes = slot.count * size_of(bucket.dtype);
        gradients_.push_back(runtime_->allocate(bytes));
        own.pieces.push_back(
            {gradients_.back().get(), own.memory.get() + slot.offset * size_of(bucket.dtype), bytes, 0});
        bytes_ += bytes;
      }
      own.host = runtime_->allocate_pinned(own.pieces.size() * sizeof(CopyPiece));
      own.table = runtime_->allocate(own.pieces.size() * sizeof(CopyPiece));
    }
    from_ = runtime_->allocate(bytes_);
    to_ = runtime_->allocate(bytes_);
  }

  std::size_t bytes() const { return bytes_; }
  double pack() {
    return seconds_of(runtime_, stream_.handle(), [&] {
      for (auto& bucket : buckets_) {
        const auto parts = GpuKernels::number_parts(bucket.pieces);
        std::ranges::copy(bucket.pieces, reinterpret_cast<CopyPiece*>(bucket.host.get()));
        runtime_->copy(bucket.table.get(), bucket.host.get(), bucket.pieces.size() * sizeof(CopyPiece),
                       stream_.handle());
        kernels_.copy({reinterpret_cast<const CopyPiece*>(bucket.table.get()), bucket.pieces.size()}, parts,
                      stream_.handle());
      }
    });
  }
  double copy() {
    return seconds_of(runtime_, stream_.handle(),
                      [&] { runtime_->copy(to_.get(), from_.get(), bytes_, stream_.handle()); });
  }

 private:
  struct Packed {
    Buffer memory, host, table;
    std::vector<CopyPiece> pieces;
  };

  const std::shared_ptr<const GpuRuntime> runtime_;
  const GpuKernels kernels_;
  const GpuStream stream_;
  std::vector<Packed> buckets_;
  std::vector<Buffer> gradients_;
  Buffer from_, to_;
  std::size_t bytes_ = 0;
};

int run(int argc, char** argv) {
  const bool small = argc > 1 && std::string_view(argv[1]) == "--small";
  std::string why_not;
  const auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) throw UserError(why_not);
  runtime->use(0);
  const auto plan = plan_buckets(small ? gpt_tensors(16, 2) : gpt_tensors(768, 12), {});
  Packing packing(runtime, plan);
  std::vector<double> pack, copy;
  for (int i = 0; i < (small ? 2 : 30); ++i) {
    pack.push_back(packing.pack());
    copy.push_back(packing.copy());
  }
  fmt::print(
      "{{\"bytes\": {}, \"buckets\": {}, \"pack_us\": {:.1f}, \"copy_us\": {:.1f}, \"fraction\": {:.3f}}}\n",
      packing.bytes(), plan.buckets.size(), median(pack) * 1e6, median(copy) * 1e6,
      median(copy) / median(pack));
  return 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  return farandole::run_main("pack_speed", [&] { return farandole::run(argc, argv); });
}
