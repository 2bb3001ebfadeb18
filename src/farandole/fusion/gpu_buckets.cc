#include "farandole/fusion/gpu_buckets.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_kernels.h"
#include "farandole/comm/gpu/kernel_jobs.h"
#include "farandole/comm/ipc/ipc_communicator.h"
#include "farandole/comm/nccl/nccl_communicator.h"

namespace farandole {
namespace {

struct GpuParts {
  GpuOfRank gpu;
  std::unique_ptr<DeviceCommunicator> ranks;
  GpuKernels kernels;
  GpuStream stream;  // of all reductions
  Buffer found;      // a float, for this stream alone; empty if nobody looks for elements that are not finite
};

std::unique_ptr<DeviceCommunicator> connect(Communicator& bootstrap, const GpuOfRank& gpu,
                                            DeviceCommunicatorOptions options) {
  if (gpu.shared)
    return std::make_unique<IpcCommunicator>(bootstrap, gpu.runtime, gpu.device, std::move(options));
  return std::make_unique<NcclCommunicator>(bootstrap, gpu.runtime, gpu.device, std::move(options));
}

// What lies behind the flags, aligned to 8 bytes. Behind it is the table of what is packed. One copy brings all of
// this to the device, and one brings the flags and the result back.
struct ScanResult {
  std::uint64_t first = all_finite;  // the first element that is not finite
  float found = 0;                   // 1 if there is one, also in an earlier reduction
  float padding = 0;
};

class GpuBucket final : public DeviceBucket {
 public:
  GpuBucket(std::shared_ptr<GpuParts> parts, const Bucket& bucket, ReduceOp op)
      : parts_(std::move(parts)),
        bucket_(bucket),
        op_(op),
        payload_bytes_(bucket.payload * size_of(bucket.dtype)),
        result_at_((bucket.bytes() + 7) / 8 * 8),
        table_at_(result_at_ + sizeof(ScanResult)),
        memory_(parts_->ranks->allocate(table_at_ + bucket.slots.size() * sizeof(CopyPiece))) {
    for (auto& turn : turns_)
      turn = {runtime().allocate_pinned(table_at_ + bucket.slots.size() * sizeof(CopyPiece) - payload_bytes_),
              std::make_unique<GpuEvent>(parts_->gpu.runtime)};
  }

  // After the loss of a rank the device has no work with the bucket any more.
  ~GpuBucket() override {
    try {
      for (int turn : {0, 1}) parts_->ranks->await(*turns_[turn].reduced);
    } catch (const Error&) {
    }
  }

  std::byte* data() override { return memory_.get(); }
  std::byte* flags(int turn) override { return turns_[turn].flags.get(); }

  void zero(std::byte* at, std::size_t bytes) override {
    runtime().zero(at, bytes, parts_->gpu.current_stream());
  }

  // Autograd may compute the gradients of a bucket on several streams.
  void written() override {
    auto* const stream = parts_->gpu.current_stream();
    const auto known = std::find_if(writers_.begin(), writers_.end(),
                                    [&](const Writer& writer) { return writer.stream == stream; });
    auto& writer =
        known != writers_.end()
            ? *known
            : writers_.emplace_back(Writer{stream, std::make_unique<GpuEvent>(parts_->gpu.runtime)});
    writer.wrote = true;
  }

  void start(int turn, std::string_view name, std::span<const Gradient> gradients, double factor) override {
    auto* const stream = parts_->stream.handle();
    auto& own = turns_[turn];
    for (auto& writer : writers_) {
      if (!std::exchange(writer.wrote, false)) continue;
      writer.end->record(writer.stream);
      writer.end->hold(stream);
    }
    *result_of(own) = ScanResult();
    const auto pieces = table_of(own, gradients);
    const auto parts = GpuKernels::number_parts(pieces);
    auto* const flags_there = memory_.get() + payload_bytes_;
    const auto flag_bytes = table_at_ - payload_bytes_;
    runtime().copy(flags_there, own.flags.get(), flag_bytes + pieces.size_bytes(), stream);
    const auto* const table = reinterpret_cast<const CopyPiece*>(memory_.get() + table_at_);
    parts_->kernels.copy({table, pieces.size()}, parts, stream);
    // NCCL's kernel for one rank reads and writes the whole bucket.
    if (parts_->ranks->size > 1 || factor != 1)
      parts_->ranks->allreduce(name, memory_.get(), bucket_.count(), bucket_.dtype, op_, factor, stream);
    if (parts_->found != nullptr) find_nonfinite();
    runtime().copy(own.flags.get(), flags_there, flag_bytes, stream);
    own.reduced->record(stream);
    last_ = turn;
  }

  void hold() override { turns_[last_].reduced->hold(parts_->gpu.current_stream()); }

  std::optional<std::size_t> await(int turn) override {
    parts_->ranks->await(*turns_[turn].reduced);
    const auto first = result_of(turns_[turn])->first;
    if (first == all_finite) return std::nullopt;
    return first;
  }

  float* found_nonfinite() override { return parts_->found != nullptr ? &result_there()->found : nullptr; }

 private:
  struct Writer {
    CUstream_st* stream;
    std::unique_ptr<GpuEvent> end;
    bool wrote = false;  // since the last reduction was started
  };
  struct Turn {
    Buffer flags;  // memory of the host, also for the result and the table
    std::unique_ptr<GpuEvent> reduced;
  };

  const GpuRuntime& runtime() const { return *parts_->gpu.runtime; }

  ScanResult* result_of(const Turn& turn) const {
    return reinterpret_cast<ScanResult*>(turn.flags.get() + result_at_ - payload_bytes_);
  }
  ScanResult* result_there() const { return reinterpret_cast<ScanResult*>(memory_.get() + result_at_); }

  // The bucket has its own copy of what is known at this place, because its update may run while a later
  // bucket is searched. Otherwise ranks could differ in what they update.
  void find_nonfinite() {
    auto* const stream = parts_->stream.handle();
    auto* const found = reinterpret_cast<float*>(parts_->found.get());
    parts_->kernels.find_nonfinite(memory_.get(), bucket_.payload, bucket_.dtype, &result_there()->first,
                                   found, stream);
    runtime().copy(&result_there()->found, found, sizeof *found, stream);
  }

  std::span<CopyPiece> table_of(const Turn& turn, std::span<const Gradient> gradients) const {
    auto* const table = reinterpret_cast<CopyPiece*>(turn.flags.get() + table_at_ - payload_bytes_);
    std::ranges::transform(gradients, table, [](const Gradient& gradient) {
      return CopyPiece{gradient.from, gradient.to, gradient.bytes, 0};
    });
    return {table, gradients.size()};
  }

  const std::shared_ptr<GpuParts> parts_;
  const Bucket bucket_;
  const ReduceOp op_;
  const std::size_t payload_bytes_, result_at_, table_at_;
  const Buffer memory_;
  Turn turns_[2];
  int last_ = 0;
  std::vector<Writer> writers_;
};

class GpuBuckets final : public BucketDevice {
 public:
  GpuBuckets(Communicator& bootstrap, const GpuOfRank& gpu, DeviceCommunicatorOptions options,
             FindNonfinite find_nonfinite)
      : parts_(new GpuParts{
            gpu, connect(bootstrap, gpu, std::move(options)), GpuKernels(gpu.runtime), GpuStream(gpu.runtime),
            find_nonfinite == FindNonfinite::yes ? gpu.runtime->allocate(sizeof(float)) : nullptr}) {}

  std::unique_ptr<DeviceBucket> make(const Bucket& bucket, ReduceOp op) override {
    return std::make_unique<GpuBucket>(parts_, bucket, op);
  }
  void forget_nonfinite() override {
    parts_->gpu.runtime->zero(parts_->found.get(), sizeof(float), parts_->stream.handle());
  }

 private:
  const std::shared_ptr<GpuParts> parts_;
};

}  // namespace

std::unique_ptr<BucketDevice> make_gpu_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                               DeviceCommunicatorOptions options,
                                               FindNonfinite find_nonfinite) {
  return std::make_unique<GpuBuckets>(bootstrap, gpu, std::move(options), find_nonfinite);
}

}  // namespace farandole
