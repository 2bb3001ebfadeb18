#include "farandole/comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/gpu/cuda_functions.h"
#include "farandole/comm/mpi/mpi_types.h"
#include "farandole/comm/nccl/nccl_functions.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {
namespace {

// How often a lost rank is looked for while collectives are in flight.
constexpr auto look_interval = std::chrono::milliseconds(10);

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

struct NcclCommunicator::Handle {
  std::mutex mutex;
  const std::unique_ptr<const NcclFunctions> nccl = load_nccl();
  ncclComm_t comm = nullptr;  // null before the start and after the end
};

// What every rank tells every other one. Sent as it is.
struct NcclCommunicator::Introduction {
  ncclUniqueId id{};  // of the lowest rank
  std::int32_t world_rank = 0;
  std::int32_t pid = 0;
  std::uint64_t pid_namespace = 0;
  char host[48] = {};  // another one on each host and after each of its starts
  char device[48] = {};
};

NcclCommunicator::NcclCommunicator(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime,
                                   int device, NcclOptions options)
    : rank(bootstrap.rank),
      size(bootstrap.size),
      runtime_(std::move(runtime)),
      device_(device),
      handle_(std::make_shared<Handle>()),
      entry_(options.registry != nullptr ? options.registry->add(options.number) : nullptr),
      launches_(options.launches),
      mutex_(handle_->mutex) {
  runtime_->use(device_);
  if (options.world_ranks.empty()) {
    options.world_ranks.resize(static_cast<std::size_t>(size));
    std::iota(options.world_ranks.begin(), options.world_ranks.end(), 0);
  }
  meet(bootstrap, options.world_ranks);
  thread_ = start_quiet_thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.stop();
  work_.notify_one();
  thread_.join();
  const bool complete = std::all_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
    try {
      return flight.end->reached();
    } catch (const Error&) {
      return false;
    }
  });
  const std::lock_guard lock(mutex_);
  const auto comm = std::exchange(handle_->comm, nullptr);
  if (comm == nullptr) return;
  const auto& nccl = *handle_->nccl;
  // Ends with the work of this rank; it does not wait for other ranks, whose collectives are complete too.
  auto state = complete ? nccl.comm_finalize(comm) : ncclInternalError;
  while (state == ncclInProgress) {
    if (const auto code = nccl.comm_get_async_error(comm, &state); code != ncclSuccess) state = code;
    if (state == ncclInProgress && lost_peer()) state = ncclRemoteError;
    std::this_thread::yield();
  }
  if (state == ncclSuccess)
    nccl.comm_destroy(comm);
  else
    nccl.comm_abort(comm);
}

void NcclCommunicator::meet(Communicator& bootstrap, const std::vector<int>& world_ranks) {
  Introduction own;
  if (rank == 0) settle(handle_->nccl->get_unique_id(&own.id), "ncclGetUniqueId", "");
  own.world_rank = world_ranks[static_cast<std::size_t>(rank)];
  own.pid = ::getpid();
  own.pid_namespace = own_pid_namespace();
  store_text(own.host, boot_id());
  store_text(own.device, runtime_->describe(device_).uuid);
  std::vector<Introduction> all(static_cast<std::size_t>(size));
  const std::vector<std::size_t> bytes(all.size(), sizeof own);
  bootstrap.all_gather("introduction", &own, all.data(), bytes);
  std::vector<PeerWatch::Peer> peers;
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b)
      if (std::strcmp(all[a].device, all[b].device) == 0 && std::strcmp(all[a].host, all[b].host) == 0)
        throw UserError(fmt::format(
            "ranks {} and {} use the same GPU ({}), which NCCL refuses; start as many ranks on each node "
            "as it has GPUs",
            all[b].world_rank, all[a].world_rank, all[a].device));
    if (a != static_cast<std::size_t>(rank) && std::strcmp(all[a].host, own.host) == 0)
      peers.push_back({all[a].world_rank, all[a].pid, all[a].pid_namespace});
  }
  peers_ = std::make_unique<PeerWatch>(peers);
  initialize(all.front());
}

void NcclCommunicator::initialize(const Introduction& root) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (entry_ != nullptr) entry_->enter(sequence_, "initialize", "NCCL", 0, now_ns());
  ++sequence_;
  settle(handle_->nccl->comm_init_rank_config(&handle_->comm, size, root.id, rank, &config),
         "ncclCommInitRankConfig", "");
  if (entry_ != nullptr) entry_->leave();
}

std::string nccl_version() {
  int code = 0;
  load_nccl()->get_version(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void NcclCommunicator::throw_loss() const {
  if (loss_) throw Error(loss_->message, loss_->code);
}

void NcclCommunicator::fail(std::string message, ExitCode code) {
  loss_ = Loss{std::move(message), code};
  if (const auto comm = std::exchange(handle_->comm, nullptr); comm != nullptr)
    handle_->nccl->comm_abort(comm);
}

std::optional<std::string> NcclCommunicator::lost_peer() const {
  const auto lost = peers_ != nullptr ? peers_->lost() : std::nullopt;
  if (!lost) return std::nullopt;
  return fmt::format("rank {} (pid {}) was lost, {}", lost->rank, lost->pid, lost->cause);
}

// A call with a non-blocking communicator may go on after it has returned; the next call must wait for it.
void NcclCommunicator::settle(int result, std::string_view call, std::string_view name) {
  const auto& nccl = *handle_->nccl;
  const auto what = name.empty() ? std::string(call) : fmt::format("{} of '{}'", call, name);
  auto state = static_cast<ncclResult_t>(result);
  while (state == ncclInProgress) {
    if (const auto code = nccl.comm_get_async_error(handle_->comm, &state); code != ncclSuccess) state = code;
    if (state != ncclInProgress) break;
    if (const auto lost = lost_peer()) {
      fail(fmt::format("{}, while this rank waited in {}", *lost, what), ExitCode::peer_lost);
      throw_loss();
    }
    std::this_thread::yield();
  }
  if (state == ncclSuccess) return;
  std::string detail = nccl.get_last_error(handle_->comm);
  detail = detail.substr(0, detail.find('\n'));
  fail(fmt::format("{}: {}{}", what, nccl.get_error_string(state), detail.empty() ? "" : " (" + detail + ")"),
       state == ncclRemoteError ? ExitCode::peer_lost : ExitCode::failure);
  throw_loss();
}

template <class Call>
void NcclCommunicator::queue(const char* operation, std::string_view name, std::size_t bytes,
                             CUstream_st* stream, Call call) {
  const std::lock_guard lock(mutex_);
  throw_loss();
  std::unique_ptr<GpuEvent> end;
  if (spare_.empty()) {
    end = std::make_unique<GpuEvent>(runtime_);
  } else {
    end = std::move(spare_.back());
    spare_.pop_back();
  }
  const auto begin_ns = now_ns();
  call(*handle_->nccl, handle_->comm);
  const auto end_ns = now_ns();
  if (launches_ != nullptr) launches_->add(name, begin_ns, end_ns);
  end->record(stream);
  flights_.push_back({sequence_++, operation, std::string(name), bytes, end_ns, std::move(end)});
  if (flights_.size() == 1) work_.notify_one();
}

void NcclCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                 ReduceOp op, CUstream_st* stream) {
  check_reduction(op, dtype);
  queue("allreduce", name, count * size_of(dtype), stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    settle(nccl.all_reduce(data, data, count, nccl_type(dtype), nccl_op(op), comm, stream), "ncclAllReduce",
           name);
  });
}

void NcclCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                 ReduceOp op, double factor, CUstream_st* stream) {
  if (factor == 1) return allreduce(name, data, count, dtype, op, stream);
  if ((dtype != DType::float32 && dtype != DType::float64) ||
      (op != ReduceOp::sum && op != ReduceOp::average))
    throw UserError("only sums and averages of float32 and float64 can be multiplied by a factor");
  double whole = op == ReduceOp::average ? factor / size : factor;
  auto single = static_cast<float>(whole);
  void* const scalar = dtype == DType::float64 ? static_cast<void*>(&whole) : &single;
  queue("allreduce", name, count * size_of(dtype), stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    ncclRedOp_t multiplied{};
    settle(
        nccl.red_op_create_pre_mul_sum(&multiplied, scalar, nccl_type(dtype), ncclScalarHostImmediate, comm),
        "ncclRedOpCreatePreMulSum", name);
    settle(nccl.all_reduce(data, data, count, nccl_type(dtype), multiplied, comm, stream), "ncclAllReduce",
           name);
    settle(nccl.red_op_destroy(multiplied, comm), "ncclRedOpDestroy", name);
  });
}

void NcclCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                  std::span<const std::size_t> bytes_by_rank, CUstream_st* stream) {
  const auto total = sum(bytes_by_rank);
  queue("all_gather", name, total, stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    if (all_equal(bytes_by_rank))
      return settle(nccl.all_gather(in, out, bytes_by_rank.front(), ncclUint8, comm, stream), "ncclAllGather",
                    name);
    settle(nccl.group_start(), "ncclGroupStart", name);
    auto result = ncclSuccess;
    auto* part = static_cast<std::byte*>(out);
    for (int r = 0; r < size; ++r) {
      const auto bytes = bytes_by_rank[static_cast<std::size_t>(r)];
      const auto code = nccl.broadcast(r == rank ? in : part, part, bytes, ncclUint8, r, comm, stream);
      if (result == ncclSuccess) result = code;
      part += bytes;
    }
    const auto end = nccl.group_end();
    settle(result == ncclSuccess || result == ncclInProgress ? end : result, "ncclBroadcast", name);
  });
}

void NcclCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root,
                                 CUstream_st* stream) {
  queue("broadcast", name, bytes, stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    settle(nccl.broadcast(data, data, bytes, ncclUint8, root, comm, stream), "ncclBroadcast", name);
  });
}

void NcclCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op,
                                      CUstream_st* stream) {
  check_reduction(op, dtype);
  const auto total = sum(count_by_rank) * size_of(dtype);
  queue("reduce_scatter", name, total, stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    if (all_equal(count_by_rank))
      return settle(
          nccl.reduce_scatter(in, out, count_by_rank.front(), nccl_type(dtype), nccl_op(op), comm, stream),
          "ncclReduceScatter", name);
    settle(nccl.group_start(), "ncclGroupStart", name);
    auto result = ncclSuccess;
    const auto* part = static_cast<const std::byte*>(in);
    for (int r = 0; r < size; ++r) {
      const auto count = count_by_rank[static_cast<std::size_t>(r)];
      const auto code = nccl.reduce(part, out, count, nccl_type(dtype), nccl_op(op), r, comm, stream);
      if (result == ncclSuccess) result = code;
      part += count * size_of(dtype);
    }
    const auto end = nccl.group_end();
    settle(result == ncclSuccess || result == ncclInProgress ? end : result, "ncclReduce", name);
  });
}

void NcclCommunicator::all_to_all(std::string_view name, const void* in,
                                  std::span<const std::size_t> send_bytes, void* out,
                                  std::span<const std::size_t> receive_bytes, CUstream_st* stream) {
  queue("all_to_all", name, sum(send_bytes), stream, [&](const NcclFunctions& nccl, ncclComm_t comm) {
    settle(nccl.group_start(), "ncclGroupStart", name);
    auto result = ncclSuccess;
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(out);
    for (int r = 0; r < size; ++r) {
      const auto sent = send_bytes[static_cast<std::size_t>(r)],
                 received = receive_bytes[static_cast<std::size_t>(r)];
      for (const auto code : {nccl.send(from, sent, ncclUint8, r, comm, stream),
                              nccl.recv(to, received, ncclUint8, r, comm, stream)})
        if (result == ncclSuccess) result = code;
      from += sent;
      to += received;
    }
    const auto end = nccl.group_end();
    settle(result == ncclSuccess || result == ncclInProgress ? end : result, "ncclSend", name);
  });
}

// The lock is free while the device is waited for, because the watching thread needs it to abort what the device waits for.
Buffer NcclCommunicator::allocate(std::size_t bytes) {
  const auto& nccl = *handle_->nccl;
  void* memory = nullptr;
  std::unique_lock lock(mutex_);
  throw_loss();
  settle(nccl.mem_alloc(&memory, std::max<std::size_t>(bytes, 1)), "ncclMemAlloc", "");
  lock.unlock();
  Buffer buffer(static_cast<std::byte*>(memory),
                [handle = handle_](std::byte* data) { handle->nccl->mem_free(data); });
  runtime_->zero_now(memory, bytes);
  lock.lock();
  throw_loss();
  void* registration = nullptr;
  settle(nccl.comm_register(handle_->comm, memory, bytes, &registration), "ncclCommRegister", "");
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

void NcclCommunicator::check() {
  const std::lock_guard lock(mutex_);
  throw_loss();
}

void NcclCommunicator::await(const GpuEvent& event) {
  while (!event.reached()) {
    check();
    std::this_thread::yield();
  }
  check();  // an aborted kernel ends, too
}

void NcclCommunicator::watch() {
  runtime_->use(device_);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || !flights_.empty(); });
    if (stopping_) return;
    lock.unlock();
    const bool go_on = stop_.sleep(look_interval);
    lock.lock();
    if (!go_on) return;
    look();
  }
}

void NcclCommunicator::look() {
  std::optional<Flight> last;
  try {
    while (!flights_.empty() && !loss_ && flights_.front().end->reached()) {
      last = std::move(flights_.front());
      flights_.pop_front();
      spare_.push_back(std::move(last->end));
    }
  } catch (const Error& error) {
    fail(error.what(), ExitCode::failure);
  }
  const Flight* const shown = !flights_.empty() ? &flights_.front() : last ? &*last : nullptr;
  if (entry_ != nullptr && shown != nullptr) {
    if (shown_ != shown->sequence)
      entry_->enter(shown->sequence, shown->operation, shown->name, shown->bytes, shown->since_ns);
    shown_ = shown->sequence;
    if (flights_.empty()) entry_->leave();
  }
  if (flights_.empty() || loss_) return flights_.clear();
  const auto& nccl = *handle_->nccl;
  ncclResult_t state = ncclSuccess;
  if (const auto code = nccl.comm_get_async_error(handle_->comm, &state); code != ncclSuccess) state = code;
  const auto waited_in = fmt::format("{} '{}' (call {})", flights_.front().operation, flights_.front().name,
                                     flights_.front().sequence);
  // A lost rank is the better reason, because it is the cause of NCCL's error.
  if (const auto lost = lost_peer())
    fail(fmt::format("{}, while this rank waited in {}", *lost, waited_in), ExitCode::peer_lost);
  else if (state != ncclSuccess && state != ncclInProgress)
    fail(fmt::format("NCCL failed in {}: {}", waited_in, nccl.get_error_string(state)),
         state == ncclRemoteError ? ExitCode::peer_lost : ExitCode::failure);
}

}  // namespace farandole
