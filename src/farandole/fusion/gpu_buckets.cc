#include "farandole/fusion/gpu_buckets.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_kernels.h"
#include "farandole/comm/gpu/kernel_jobs.h"
#include "farandole/comm/ipc/ipc_communicator.h"
#include "farandole/comm/nccl/nccl_communicator.h"

namespace farandole {
namespace {

std::unique_ptr<DeviceCommunicator> connect(Communicator& bootstrap, const GpuOfRank& gpu,
                                            DeviceCommunicatorOptions options) {
  if (gpu.shared)
    return std::make_unique<IpcCommunicator>(bootstrap, gpu.runtime, gpu.device, std::move(options));
  return std::make_unique<NcclCommunicator>(bootstrap, gpu.runtime, gpu.device, std::move(options));
}

struct GpuParts {
  GpuParts(Communicator& bootstrap, const GpuOfRank& of_rank, DeviceCommunicatorOptions options,
           FindNonfinite find_nonfinite)
      : gpu(of_rank),
        ranks(connect(bootstrap, gpu, std::move(options))),
        kernels(gpu.runtime),
        stream(gpu.runtime),
        begin(gpu.runtime),
        end(gpu.runtime),
        memory(ranks->allocate(sizeof(double) + sizeof(float))) {
    if (find_nonfinite == FindNonfinite::yes) found = reinterpret_cast<float*>(memory.get() + sizeof(double));
  }
  double* number() const { return reinterpret_cast<double*>(memory.get()); }

  const GpuOfRank gpu;
  const std::unique_ptr<DeviceCommunicator> ranks;
  const GpuKernels kernels;
  const GpuStream stream;  // of all collectives
  GpuEvent begin, end;     // of those that are no reductions of buckets
  const Buffer memory;     // for number() and `found`
  float* found = nullptr;  // for the stream alone; null if nobody looks for elements that are not finite
};

// What lies behind the flags, aligned to 8 bytes. Behind it is the table of what is packed. One copy brings
// all of this to the device, and one brings the flags and the result back.
struct ScanResult {
  std::uint64_t first = all_finite;  // the first element that is not finite
  float found = 0;                   // 1 if there is one, also in an earlier reduction
  float padding = 0;
};

// A divided bucket has all parts before its flags.
class GpuBucket final : public DeviceBucket {
 public:
  // `part`: elements of the part of a rank, 0 if the bucket is not divided; `own`: those of this rank.
  GpuBucket(std::shared_ptr<GpuParts> parts, const Bucket& bucket, ReduceOp op, std::size_t part,
            std::pair<std::size_t, std::size_t> own)
      : parts_(std::move(parts)),
        bucket_(bucket),
        op_(op),
        part_(part),
        own_(std::move(own)),
        payload_(part == 0 ? bucket.payload : part * static_cast<std::size_t>(parts_->ranks->size)),
        payload_bytes_(payload_ * size_of(bucket.dtype)),
        result_at_((payload_bytes_ + flag_count() * size_of(bucket.dtype) + 7) / 8 * 8),
        table_at_(result_at_ + sizeof(ScanResult)),
        memory_(parts_->ranks->allocate(table_at_ + bucket.slots.size() * sizeof(CopyPiece))) {
    for (auto& set : flag_sets_)
      set = {runtime().allocate_pinned(table_at_ + bucket.slots.size() * sizeof(CopyPiece) - payload_bytes_),
             std::make_unique<GpuEvent>(parts_->gpu.runtime)};
  }

  // After the loss of a rank the device has no work with the bucket any more.
  ~GpuBucket() override {
    try {
      for (int set : {0, 1}) parts_->ranks->await(*flag_sets_[set].reduced);
    } catch (const Error&) {
    }
  }

  std::byte* data() override { return memory_.get(); }
  std::byte* flags(int set) override { return flag_sets_[set].flags.get(); }

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

  void start(int set, std::string_view name, std::span<const Gradient> gradients, double factor) override {
    auto* const stream = parts_->stream.handle();
    auto& own = flag_sets_[set];
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
    if (parts_->ranks->size > 1 || factor != 1) reduce(name, factor);
    if (parts_->found != nullptr) find_nonfinite(name);
    runtime().copy(own.flags.get(), flags_there, flag_bytes, stream);
    own.reduced->record(stream);
    last_ = set;
  }

  void hold() override { flag_sets_[last_].reduced->hold(parts_->gpu.current_stream()); }

  std::optional<std::size_t> await(int set) override {
    parts_->ranks->await(*flag_sets_[set].reduced);
    const auto first = result_of(flag_sets_[set])->first;
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
  struct FlagSet {
    Buffer flags;  // memory of the host, also for the result and the table
    std::unique_ptr<GpuEvent> reduced;
  };

  const GpuRuntime& runtime() const { return *parts_->gpu.runtime; }

  ScanResult* result_of(const FlagSet& set) const {
    return reinterpret_cast<ScanResult*>(set.flags.get() + result_at_ - payload_bytes_);
  }
  ScanResult* result_there() const { return reinterpret_cast<ScanResult*>(memory_.get() + result_at_); }

  std::size_t flag_count() const { return bucket_.count() - bucket_.payload; }

  void reduce(std::string_view name, double factor) {
    auto* const stream = parts_->stream.handle();
    if (part_ == 0)
      return parts_->ranks->allreduce(name, memory_.get(), bucket_.count(), bucket_.dtype, op_, factor,
                                      stream);
    parts_->ranks->reduce(
        name,
        std::array{DeviceReduction{memory_.get(), payload_, bucket_.dtype, op_, factor, /*scattered=*/true},
                   DeviceReduction{memory_.get() + payload_bytes_, flag_count(), bucket_.dtype, op_}},
        stream);
  }

  // The bucket has its own copy of what is known at this place, because its update may run while a later
  // bucket is searched. Otherwise ranks could differ in what they update.
  void find_nonfinite(std::string_view name) {
    auto* const stream = parts_->stream.handle();
    auto* const found = parts_->found;
    auto* const first = &result_there()->first;
    const auto [begin, end] = own_;
    if (begin < end)
      parts_->kernels.find_nonfinite(memory_.get() + begin * size_of(bucket_.dtype), end - begin,
                                     bucket_.dtype, first, found, stream, begin);
    if (part_ != 0)
      parts_->ranks->reduce(fmt::format("result of {}", name),
                            std::array{DeviceReduction{first, 1, DType::int64, ReduceOp::min},
                                       DeviceReduction{found, 1, DType::float32, ReduceOp::max}},
                            stream);
    runtime().copy(&result_there()->found, found, sizeof *found, stream);
  }

  std::span<CopyPiece> table_of(const FlagSet& set, std::span<const Gradient> gradients) const {
    auto* const table = reinterpret_cast<CopyPiece*>(set.flags.get() + table_at_ - payload_bytes_);
    std::ranges::transform(gradients, table, [](const Gradient& gradient) {
      return CopyPiece{gradient.from, gradient.to, gradient.bytes, 0};
    });
    return {table, gradients.size()};
  }

  const std::shared_ptr<GpuParts> parts_;
  const Bucket bucket_;
  const ReduceOp op_;
  const std::size_t part_;
  const std::pair<std::size_t, std::size_t> own_;
  const std::size_t payload_;  // elements before the flags
  const std::size_t payload_bytes_, result_at_, table_at_;
  const Buffer memory_;
  FlagSet flag_sets_[2];
  int last_ = 0;
  std::vector<Writer> writers_;
};

class GpuBuckets final : public BucketDevice {
 public:
  GpuBuckets(Communicator& bootstrap, const GpuOfRank& gpu, DeviceCommunicatorOptions options,
             FindNonfinite find_nonfinite)
      : parts_(std::make_shared<GpuParts>(bootstrap, gpu, std::move(options), find_nonfinite)) {}

  std::unique_ptr<DeviceBucket> make(const Bucket& bucket, ReduceOp op, Divided divided) override {
    if (divided == Divided::no)
      return std::make_unique<GpuBucket>(parts_, bucket, op, 0, std::pair(std::size_t{0}, bucket.payload));
    return std::make_unique<GpuBucket>(parts_, bucket, op, part_of(bucket.payload, size_of(bucket.dtype)),
                                       own_part(bucket));
  }

  int rank() const override { return parts_->ranks->rank; }
  int size() const override { return parts_->ranks->size; }
  // Ranks that share GPUs must have allocated it together.
  bool can_gather() const override { return !parts_->gpu.shared; }

  void gather(std::string_view name, void* memory, std::size_t part_bytes) override {
    const std::vector<std::size_t> bytes(static_cast<std::size_t>(size()), part_bytes);
    const auto* const own = static_cast<std::byte*>(memory) + part_bytes * static_cast<std::size_t>(rank());
    in_order([&](CUstream_st* stream) { parts_->ranks->all_gather(name, own, memory, bytes, stream); });
  }
  double* number() override { return parts_->number(); }
  void sum_over_ranks(std::string_view name) override {
    in_order([&](CUstream_st* stream) {
      parts_->ranks->allreduce(name, number(), 1, DType::float64, ReduceOp::sum, stream);
    });
    hold();
  }
  void hold() override { parts_->end.hold(parts_->gpu.current_stream()); }

  void forget_nonfinite() override {
    parts_->gpu.runtime->zero(parts_->found, sizeof(float), parts_->stream.handle());
  }

 private:
  template <class Collective>
  void in_order(Collective collective) {
    parts_->begin.record(parts_->gpu.current_stream());
    parts_->begin.hold(parts_->stream.handle());
    collective(parts_->stream.handle());
    parts_->end.record(parts_->stream.handle());
  }

  const std::shared_ptr<GpuParts> parts_;
};

}  // namespace

std::unique_ptr<BucketDevice> make_gpu_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                               DeviceCommunicatorOptions options,
                                               FindNonfinite find_nonfinite) {
  return std::make_unique<GpuBuckets>(bootstrap, gpu, std::move(options), find_nonfinite);
}

}  // namespace farandole
