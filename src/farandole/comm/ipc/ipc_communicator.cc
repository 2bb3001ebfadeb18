#include "farandole/comm/ipc/ipc_communicator.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/comm/gpu/cuda_functions.h"

namespace farandole {
namespace {

std::shared_ptr<const GpuRuntime> using_device(std::shared_ptr<const GpuRuntime> runtime, int device) {
  runtime->use(device);
  return runtime;
}

std::vector<DevicePeer> meet_on_one_host(Communicator& bootstrap, const GpuRuntime& runtime, int device,
                                         const std::vector<int>& world_ranks) {
  auto peers = meet_peers(bootstrap, runtime, device, world_ranks);
  if (std::any_of(peers.begin(), peers.end(),
                  [&](const DevicePeer& peer) { return !peer.same_host(peers.front()); }))
    throw UserError(
        "ranks that share GPUs must be on one node; give each rank a GPU of its own, without --ranks-per-gpu");
  if (peers.size() > most_peers)
    throw UserError(fmt::format("at most {} ranks can share GPUs, not {}", most_peers, peers.size()));
  return peers;
}

std::size_t sum_before(std::span<const std::size_t> by_rank, std::size_t rank) {
  return std::accumulate(by_rank.begin(), by_rank.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::size_t{0});
}

}  // namespace

IpcCommunicator::IpcCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime,
                                 int device, DeviceCommunicatorOptions options)
    : DeviceCommunicator(bootstrap.rank, bootstrap.size),
      runtime_(using_device(std::move(runtime), device)),
      kernels_(runtime_) {
  const auto peers = meet_on_one_host(bootstrap, *runtime_, device, options.world_ranks);
  blocks_ = std::make_shared<SharedBlocks>(bootstrap, runtime_);
  meeting_.emplace(bootstrap, runtime_);
  // A failure of the device shows when it is asked for events, so there is no other error to look for.
  flights_.emplace(
      runtime_, device, mutex_, peers, rank, options,
      DeviceFlights::Library{[](const std::string&) { return std::nullopt; }, [this] { meeting_->abort(); }});
}

IpcCommunicator::~IpcCommunicator() {
  const bool complete = flights_->stop();
  const auto begin = std::chrono::steady_clock::now();
  const auto in_time = [&] { return std::chrono::steady_clock::now() - begin < wait_for_others; };
  while (!complete && !flights_->all_reached() && in_time()) meeting_->abort();
  runtime_->functions().device_synchronize();
  if (complete) {
    blocks_->close_others();
    meeting_->leave();
  }
  while (complete && !meeting_->all_have_left() && !flights_->lost_peer() && in_time())
    std::this_thread::yield();
  if (!complete || !meeting_->all_have_left()) blocks_->keep();
}

// After a call that has failed, this rank does not come to the meetings any more, so its own stream must
// not wait either.
template <class Work>
void IpcCommunicator::queue(const char* operation, std::string_view name, std::size_t bytes,
                            CUstream_st* stream, Work work) {
  flights_->queue(operation, name, bytes, stream, [&] {
    try {
      work();
    } catch (const Error& error) {
      flights_->fail({fmt::format("{} of '{}'", error.what(), name), ExitCode::failure});
      flights_->throw_loss();
    }
  });
}

// Each rank reduces its part.
PeerReduction IpcCommunicator::job_of(std::string_view name, const DeviceReduction& reduction) {
  const auto& [data, count, dtype, op, factor, scattered] = reduction;
  check_reduction(op, dtype);
  const auto places = blocks_->find(name, data, count * size_of(dtype));
  // Parts of whole vectors, so that all of them begin at addresses that are aligned as `data`.
  const auto vector = sizeof(DeviceVector) / size_of(dtype);
  const auto part = scattered ? count / places.size() : (count / places.size() / vector + 1) * vector;
  const auto begin = std::min(own() * part, count), end = std::min(begin + part, count);
  PeerReduction job{};
  job.input_count = static_cast<std::uint32_t>(size);
  job.output_count = scattered ? 1 : job.input_count;
  for (std::size_t r = 0; r < places.size(); ++r)
    job.inputs[r] = job.outputs[r] = places[r] + begin * size_of(dtype);
  if (scattered) job.outputs[0] = places[own()] + begin * size_of(dtype);
  job.count = end - begin;
  job.dtype = dtype;
  job.op = op;
  job.factor = factor;
  return job;
}

void IpcCommunicator::reduce(std::string_view name, std::span<const DeviceReduction> reductions,
                             CUstream_st* stream) {
  std::vector<PeerReduction> jobs;
  for (const auto& each : reductions) jobs.push_back(job_of(name, each));
  const bool scatters = std::ranges::any_of(reductions, &DeviceReduction::scattered);
  queue(scatters ? "reduce_scatter" : "allreduce", name, bytes_of(reductions), stream, [&] {
    meeting_->meet(stream);
    for (const auto& job : jobs) kernels_.reduce(job, stream);
    meeting_->meet(stream);
  });
}

// Ranks begin with different targets, so that they do not all write to the same one.
void IpcCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                 std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) {
  const auto total = sum(bytes_by_rank), begin = sum_before(bytes_by_rank, own());
  const auto places = blocks_->find(name, out, total);
  queue("all_gather", name, total, stream, [&] {
    meeting_->meet(stream);
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto* const to = places[(own() + i) % places.size()] + begin;
      if (to != in && bytes_by_rank[own()] > 0) runtime_->copy(to, in, bytes_by_rank[own()], stream);
    }
    meeting_->meet(stream);
  });
}

Buffer IpcCommunicator::allocate(std::size_t bytes) {
  flights_->check();
  return blocks_->allocate(bytes);
}

}  // namespace farandole
