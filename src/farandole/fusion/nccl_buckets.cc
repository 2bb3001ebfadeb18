#include "farandole/fusion/nccl_buckets.h"

#include <algorithm>
#include <vector>

namespace farandole {
namespace {

class NcclBuckets final : public BucketDevice {
 public:
  NcclBuckets(Communicator& bootstrap, const GpuOfRank& gpu, NcclOptions options)
      : gpu_(gpu), nccl_(bootstrap, gpu.runtime, gpu.device, std::move(options)), stream_(gpu.runtime) {}

  Buffer allocate(std::size_t bytes) override { return nccl_.allocate(bytes); }
  Buffer allocate_flags(std::size_t bytes) override { return gpu_.runtime->allocate_pinned(bytes); }
  void zero(void* data, std::size_t bytes) override {
    gpu_.runtime->zero(data, bytes, gpu_.current_stream());
  }

  // Autograd may compute the gradients of a bucket on several streams. Each has an event after its last write.
  void written(std::size_t bucket) override {
    auto* const stream = gpu_.current_stream();
    auto& writers = at(bucket).writers;
    const auto known = std::find_if(writers.begin(), writers.end(),
                                    [&](const Writer& writer) { return writer.stream == stream; });
    auto& writer = known != writers.end()
                       ? *known
                       : writers.emplace_back(Writer{stream, std::make_unique<GpuEvent>(gpu_.runtime)});
    writer.end->record(stream);
  }

  void start(const Reduction& reduction) override {
    auto& bucket = at(reduction.bucket);
    for (const auto& writer : bucket.writers) writer.end->hold(stream_.handle());
    const auto& flags = reduction.flags;
    auto* const flags_there = reduction.data + reduction.count * size_of(reduction.dtype) - flags.size();
    gpu_.runtime->copy(flags_there, flags.data(), flags.size(), stream_.handle());
    nccl_.allreduce(reduction.name, reduction.data, reduction.count, reduction.dtype, reduction.op,
                    stream_.handle());
    gpu_.runtime->copy(flags.data(), flags_there, flags.size(), stream_.handle());
    bucket.reduced->record(stream_.handle());
  }

  void await(std::size_t bucket) override { nccl_.await(*at(bucket).reduced); }

 private:
  struct Writer {
    CUstream_st* stream;
    std::unique_ptr<GpuEvent> end;
  };
  struct State {
    std::vector<Writer> writers;  // those of earlier steps have ended
    std::unique_ptr<GpuEvent> reduced;
  };
  State& at(std::size_t bucket) {
    while (states_.size() <= bucket) states_.push_back({{}, std::make_unique<GpuEvent>(gpu_.runtime)});
    return states_[bucket];
  }

  const GpuOfRank gpu_;
  NcclCommunicator nccl_;
  GpuStream stream_;
  std::vector<State> states_;  // by bucket
};

}  // namespace

std::unique_ptr<BucketDevice> make_nccl_buckets(Communicator& bootstrap, const GpuOfRank& gpu,
                                                NcclOptions options) {
  return std::make_unique<NcclBuckets>(bootstrap, gpu, std::move(options));
}

}  // namespace farandole
