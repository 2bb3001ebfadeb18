#include "farandole/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/process/shared_library.h"
#include "farandole/comm/gpu/cuda_functions.h"
#include "farandole/comm/nccl/nccl_functions.h"

namespace farandole {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
    case DType::uint8:
    case DType::boolean:
      return ncclUint8;
    case DType::int8:
      return ncclInt8;
    case DType::int16:
      throw UserError("NCCL cannot reduce int16; convert to int32 first");
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::average:
      return ncclAvg;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::product:
      return ncclProd;
  }
  return ncclSum;
}

void check_device_reduction(const DeviceReduction& reduction) {
  check_reduction(reduction.op, reduction.dtype);
  nccl_type(reduction.dtype);
  const bool fractional = reduction.dtype == DType::float32 || reduction.dtype == DType::float64;
  if (reduction.factor != 1 &&
      (!fractional || (reduction.op != ReduceOp::sum && reduction.op != ReduceOp::average)))
    throw UserError("only sums and averages of float32 and float64 can be multiplied by a factor");
}

bool all_equal(std::span<const std::size_t> values) {
  return std::all_of(values.begin(), values.end(),
                     [&](std::size_t value) { return value == values.front(); });
}

std::unique_ptr<const NcclFunctions> load_nccl() {
  auto functions = std::make_unique<NcclFunctions>();
  const auto why_not = load(*functions);
  if (!why_not.empty()) throw UserError("GPUs cannot communicate: " + why_not);
  return functions;
}

}  // namespace

std::string load(NcclFunctions& functions) {
  SharedLibrary library("FARANDOLE_NCCL_LIBRARY", "libnccl.so.2");
  library.find(functions.get_version, "ncclGetVersion");
  library.find(functions.get_unique_id, "ncclGetUniqueId");
  library.find(functions.comm_init_rank_config, "ncclCommInitRankConfig");
  library.find(functions.comm_finalize, "ncclCommFinalize");
  library.find(functions.comm_destroy, "ncclCommDestroy");
  library.find(functions.comm_abort, "ncclCommAbort");
  library.find(functions.comm_get_async_error, "ncclCommGetAsyncError");
  library.find(functions.get_error_string, "ncclGetErrorString");
  library.find(functions.get_last_error, "ncclGetLastError");
  library.find(functions.mem_alloc, "ncclMemAlloc");
  library.find(functions.mem_free, "ncclMemFree");
  library.find(functions.comm_register, "ncclCommRegister");
  library.find(functions.comm_deregister, "ncclCommDeregister");
  library.find(functions.group_start, "ncclGroupStart");
  library.find(functions.group_end, "ncclGroupEnd");
  library.find(functions.all_reduce, "ncclAllReduce");
  library.find(functions.red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  library.find(functions.red_op_destroy, "ncclRedOpDestroy");
  library.find(functions.broadcast, "ncclBroadcast");
  library.find(functions.all_gather, "ncclAllGather");
  library.find(functions.reduce_scatter, "ncclReduceScatter");
  return library.why_not();
}

struct NcclCommunicator::Handle {
  std::mutex mutex;
  const std::unique_ptr<const NcclFunctions> nccl = load_nccl();
  ncclComm_t comm = nullptr;  // null before the start and after the end
};

NcclCommunicator::NcclCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime,
                                   int device, DeviceCommunicatorOptions options)
    : DeviceCommunicator(bootstrap.rank, bootstrap.size),
      runtime_(std::move(runtime)),
      handle_(std::make_shared<Handle>()) {
  runtime_->use(device);
  const auto peers = meet_peers(bootstrap, *runtime_, device, options.world_ranks);
  for (std::size_t a = 0; a < peers.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (peers[a].same_device(peers[b]))
        throw UserError(fmt::format(
            "ranks {} and {} use the same GPU ({}), which NCCL refuses; start as many ranks on each node "
            "as it has GPUs, or let ranks share them (--ranks-per-gpu)",
            peers[b].world_rank, peers[a].world_rank, peers[a].device));
  const auto abort = [handle = handle_.get()] {
    if (const auto comm = std::exchange(handle->comm, nullptr); comm != nullptr)
      handle->nccl->comm_abort(comm);
  };
  flights_.emplace(
      runtime_, device, handle_->mutex, peers, rank, options,
      DeviceFlights::Library{[this](const std::string& waiting_in) { return asynchronous_error(waiting_in); },
                             abort});
  start(bootstrap, peers);
}

NcclCommunicator::~NcclCommunicator() {
  const bool complete = flights_->stop();
  const std::lock_guard lock(handle_->mutex);
  const auto comm = std::exchange(handle_->comm, nullptr);
  if (comm == nullptr) return;
  const auto& nccl = *handle_->nccl;
  // NCCL waits here until all ranks have no work left.
  const auto begin = std::chrono::steady_clock::now();
  auto state = complete ? nccl.comm_finalize(comm) : ncclInternalError;
  while (state == ncclInProgress) {
    if (const auto code = nccl.comm_get_async_error(comm, &state); code != ncclSuccess) state = code;
    const bool in_time = std::chrono::steady_clock::now() - begin < wait_for_others;
    if (state == ncclInProgress && (!in_time || flights_->lost_peer())) state = ncclRemoteError;
    std::this_thread::yield();
  }
  if (state == ncclSuccess)
    nccl.comm_destroy(comm);
  else
    nccl.comm_abort(comm);
}

void NcclCommunicator::start(Communicator& bootstrap, std::span<const DevicePeer> peers) {
  ncclUniqueId own{};
  const std::unique_lock lock(handle_->mutex);
  if (rank == 0) complete(handle_->nccl->get_unique_id(&own), "ncclGetUniqueId", "");
  std::vector<ncclUniqueId> all(peers.size());
  bootstrap.all_gather("id of NCCL", &own, all.data(), std::vector<std::size_t>(all.size(), sizeof own));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  flights_->begin_start("NCCL");
  complete(handle_->nccl->comm_init_rank_config(&handle_->comm, size, all.front(), rank, &config),
           "ncclCommInitRankConfig", "");
  flights_->end_start();
}

std::string nccl_version() {
  int code = 0;
  load_nccl()->get_version(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

// A call with a non-blocking communicator may go on after it has returned; the next call must wait for it.
// NCCL connects ranks when they first need it, so the call may go on until all of them have called.
void NcclCommunicator::complete(int result, std::string_view call, std::string_view name) {
  const auto& nccl = *handle_->nccl;
  const auto what = name.empty() ? std::string(call) : fmt::format("{} of '{}'", call, name);
  auto state = static_cast<ncclResult_t>(result);
  if (state == ncclInProgress)
    flights_->await_call(what, [&] {
      if (const auto code = nccl.comm_get_async_error(handle_->comm, &state); code != ncclSuccess)
        state = code;
      return state == ncclInProgress;
    });
  if (state == ncclSuccess) return;
  std::string detail = nccl.get_last_error(handle_->comm);
  detail = detail.substr(0, detail.find('\n'));
  flights_->fail(
      {fmt::format("{}: {}{}", what, nccl.get_error_string(state), detail.empty() ? "" : " (" + detail + ")"),
       state == ncclRemoteError ? ExitCode::peer_lost : ExitCode::failure});
  flights_->throw_loss();
}

// `result` is that of the calls in the group, of which `call` is one.
void NcclCommunicator::end_group(int result, std::string_view call, std::string_view name) {
  const auto end = handle_->nccl->group_end();
  const bool all_queued = result == ncclSuccess || result == ncclInProgress;
  complete(all_queued ? end : result, all_queued ? "ncclGroupEnd" : call, name);
}

// An operator of its own if the elements are multiplied.
int NcclCommunicator::op_of(const DeviceReduction& reduction, std::string_view name) {
  if (reduction.factor == 1) return nccl_op(reduction.op);
  double whole = reduction.op == ReduceOp::average ? reduction.factor / size : reduction.factor;
  auto single = static_cast<float>(whole);
  void* const scalar = reduction.dtype == DType::float64 ? static_cast<void*>(&whole) : &single;
  ncclRedOp_t multiplied{};
  complete(handle_->nccl->red_op_create_pre_mul_sum(&multiplied, scalar, nccl_type(reduction.dtype),
                                                    ncclScalarHostImmediate, handle_->comm),
           "ncclRedOpCreatePreMulSum", name);
  return multiplied;
}

template <class Call>
void NcclCommunicator::queue(const char* operation, std::string_view name, std::size_t bytes,
                             CUstream_st* stream, Call call) {
  flights_->queue(operation, name, bytes, stream, [&] { call(*handle_->nccl, handle_->comm); });
}

void NcclCommunicator::reduce(std::string_view name, std::span<const DeviceReduction> reductions,
                              CUstream_st* stream) {
  for (const auto& each : reductions) check_device_reduction(each);
  const bool scatters = std::ranges::any_of(reductions, &DeviceReduction::scattered);
  queue(scatters ? "reduce_scatter" : "allreduce", name, bytes_of(reductions), stream,
        [&](const NcclFunctions& nccl, ncclComm_t comm) {
          std::vector<ncclRedOp_t> ops;
          for (const auto& each : reductions) ops.push_back(static_cast<ncclRedOp_t>(op_of(each, name)));
          const bool in_group = reductions.size() > 1;
          if (in_group) complete(nccl.group_start(), "ncclGroupStart", name);
          auto result = ncclSuccess;
          std::string_view failed;
          for (std::size_t i = 0; i < reductions.size(); ++i) {
            const auto& [data, count, dtype, op, factor, scattered] = reductions[i];
            const auto part = count / static_cast<std::size_t>(size);
            auto* const own =
                static_cast<std::byte*>(data) + part * size_of(dtype) * static_cast<std::size_t>(rank);
            const auto* const call = scattered ? "ncclReduceScatter" : "ncclAllReduce";
            const auto code =
                scattered ? nccl.reduce_scatter(data, own, part, nccl_type(dtype), ops[i], comm, stream)
                          : nccl.all_reduce(data, data, count, nccl_type(dtype), ops[i], comm, stream);
            if (!in_group) {
              complete(code, call, name);
            } else if (failed.empty() && code != ncclSuccess && code != ncclInProgress) {
              result = code;
              failed = call;
            }
          }
          if (in_group) end_group(result, failed, name);
          for (std::size_t i = 0; i < reductions.size(); ++i)
            if (reductions[i].factor != 1)
              complete(nccl.red_op_destroy(ops[i], comm), "ncclRedOpDestroy", name);
        });
}

void NcclCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                  std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) {
  const auto total = sum(bytes_by_rank);
  queue("all_gather", name, total, stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    if (all_equal(bytes_by_rank))
      return complete(nccl.all_gather(in, out, bytes_by_rank.front(), ncclUint8, comm, stream),
                      "ncclAllGather", name);
    complete(nccl.group_start(), "ncclGroupStart", name);
    auto result = ncclSuccess;
    auto* part = static_cast<std::byte*>(out);
    for (int r = 0; r < size; ++r) {
      const auto bytes = bytes_by_rank[static_cast<std::size_t>(r)];
      const auto code = nccl.broadcast(r == rank ? in : part, part, bytes, ncclUint8, r, comm, stream);
      if (result == ncclSuccess) result = code;
      part += bytes;
    }
    end_group(result, "ncclBroadcast", name);
  });
}

// The lock is free while the device is waited for, because the watching thread needs it to abort what the
// device waits for.
Buffer NcclCommunicator::allocate(std::size_t bytes) {
  const auto& nccl = *handle_->nccl;
  void* memory = nullptr;
  std::unique_lock lock(handle_->mutex);
  flights_->throw_loss();
  complete(nccl.mem_alloc(&memory, std::max<std::size_t>(bytes, 1)), "ncclMemAlloc", "");
  lock.unlock();
  Buffer buffer(static_cast<std::byte*>(memory),
                [handle = handle_](std::byte* data) { handle->nccl->mem_free(data); });
  runtime_->zero_now(memory, bytes);
  lock.lock();
  flights_->throw_loss();
  void* registration = nullptr;
  complete(nccl.comm_register(handle_->comm, memory, bytes, &registration), "ncclCommRegister", "");
  buffer.get_deleter() = [handle = handle_, registration, runtime = runtime_](std::byte* data) {
    // As cudaFree does, because any stream may still use the memory.
    runtime->functions().device_synchronize();
    {
      const std::lock_guard held(handle->mutex);
      if (handle->comm != nullptr) handle->nccl->comm_deregister(handle->comm, registration);
    }
    handle->nccl->mem_free(data);
  };
  return buffer;
}

std::optional<DeviceLoss> NcclCommunicator::asynchronous_error(const std::string& waiting_in) const {
  const auto& nccl = *handle_->nccl;
  ncclResult_t state = ncclSuccess;
  if (const auto code = nccl.comm_get_async_error(handle_->comm, &state); code != ncclSuccess) state = code;
  if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
  return DeviceLoss{fmt::format("NCCL failed in {}: {}", waiting_in, nccl.get_error_string(state)),
                    state == ncclRemoteError ? ExitCode::peer_lost : ExitCode::failure};
}

}  // namespace farandole
