// A test double of NCCL between processes of one host. The ranks exchange messages through a file in memory
// that rank 0 creates and that ends with its processes. Collectives run on the threads of the streams. As
// with NCCL, a rank whose peer is lost waits until its communicator is aborted. The first collective of a
// kind connects the ranks: it is in progress until all ranks have called it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <nccl.h>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gpu/double/double.h"
#include "gpu/double/streams.h"

#include "farandole/comm/kernels/kernels.h"

namespace {

constexpr int most_ranks = 8;
constexpr std::size_t piece = 16 << 10;

// One message at a time from one rank to another one.
struct Mailbox {
  std::atomic<std::uint32_t> full{0};
  std::uint32_t bytes = 0;
  std::uint64_t operation = 0;
  std::byte data[piece];
};

// What connects ranks in its own way.
enum class Kind { all_reduce, reduce_scatter, broadcast, all_gather };

struct Shared {
  std::atomic<int> attached{0}, finalizing{0};
  std::atomic<int> connecting[4] = {};  // by kind: ranks that have called such a collective
  std::atomic<std::uint64_t> ranks{0};  // of ncclCommInitRank, which must agree
  Mailbox mailboxes[most_ranks][most_ranks];
};

struct Id {
  std::int32_t pid, file;
};

struct Message {
  int peer;
  std::byte* data;
  std::size_t bytes, done = 0;
};

}  // namespace

struct ncclComm {
  Shared* shared = nullptr;
  int rank = 0, size = 0;
  std::atomic<bool> aborted{false};
  std::vector<double> factors;  // of ncclRedOpCreatePreMulSum; 0: destroyed
  std::atomic<int> running{0};  // collectives that were queued and have not ended
  std::atomic<int> state{ncclSuccess};
  std::set<Kind> kinds;  // of collectives that were called
  bool finalized = false;
  int pretended = 0;             // number of times that a call still is in progress
  std::uint64_t operations = 0;  // queued so far
  int collectives = 0;
};

namespace {

thread_local int groups = 0;

struct Queued {
  ncclComm* comm;
  Kind kind;
  CUstream_st* stream;
  std::vector<gpu_double::Access> accesses;
  std::function<void(std::uint64_t)> work;
};
thread_local std::vector<Queued> queued;

std::string last_error;

// Each rank sends and receives until all is done or the communicator is aborted. Messages of one peer
// keep their order.
bool exchange(ncclComm* comm, std::uint64_t operation, std::vector<Message> sends,
              std::vector<Message> receives) {
  const auto first_to = [](std::vector<Message>& all, std::size_t i) {
    return std::none_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), [&](const Message& other) {
      return other.peer == all[i].peer && other.done < other.bytes;
    });
  };
  for (;;) {
    if (comm->aborted) return false;
    bool complete = true, progress = false;
    for (std::size_t i = 0; i < sends.size(); ++i) {
      auto& message = sends[i];
      if (message.done == message.bytes) continue;
      complete = false;
      auto& box = comm->shared->mailboxes[comm->rank][message.peer];
      if (!first_to(sends, i) || box.full.load(std::memory_order_acquire) != 0) continue;
      const auto bytes = std::min(piece, message.bytes - message.done);
      std::memcpy(box.data, message.data + message.done, bytes);
      box.bytes = static_cast<std::uint32_t>(bytes);
      box.operation = operation;
      box.full.store(1, std::memory_order_release);
      message.done += bytes;
      progress = true;
    }
    for (std::size_t i = 0; i < receives.size(); ++i) {
      auto& message = receives[i];
      if (message.done == message.bytes) continue;
      complete = false;
      auto& box = comm->shared->mailboxes[message.peer][comm->rank];
      if (!first_to(receives, i) || box.full.load(std::memory_order_acquire) == 0) continue;
      if (box.operation != operation || box.bytes > message.bytes - message.done) {
        std::fprintf(stderr, "NCCL double: rank %d got a message of another collective from rank %d\n",
                     comm->rank, message.peer);
        std::abort();
      }
      std::memcpy(message.data + message.done, box.data, box.bytes);
      message.done += box.bytes;
      box.full.store(0, std::memory_order_release);
      progress = true;
    }
    if (complete) return true;
    if (!progress) std::this_thread::yield();
  }
}

std::byte* bytes_at(const void* memory, std::size_t offset = 0) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(memory)) + offset;
}

farandole::DType dtype_of(ncclDataType_t type) {
  using farandole::DType;
  switch (type) {
    case ncclFloat16:
      return DType::float16;
    case ncclBfloat16:
      return DType::bfloat16;
    case ncclFloat32:
      return DType::float32;
    case ncclFloat64:
      return DType::float64;
    case ncclInt32:
      return DType::int32;
    case ncclInt64:
      return DType::int64;
    case ncclInt8:
      return DType::int8;
    default:
      return DType::uint8;
  }
}

bool multiplies(ncclRedOp_t op) {
  return op >= ncclNumOps;
}

farandole::ReduceOp op_of(ncclRedOp_t op) {
  using farandole::ReduceOp;
  if (multiplies(op)) return ReduceOp::sum;
  return op == ncclSum   ? ReduceOp::sum
         : op == ncclAvg ? ReduceOp::average
         : op == ncclMin ? ReduceOp::min
         : op == ncclMax ? ReduceOp::max
                         : ReduceOp::product;
}

// Sends own[r] to each rank r and reduces what comes for this rank in the order of ranks.
void reduce_for(ncclComm* comm, std::uint64_t operation, const std::function<const std::byte*(int)>& own,
                std::byte* out, std::size_t count, farandole::DType dtype, farandole::ReduceOp op) {
  const auto bytes = count * size_of(dtype);
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(comm->size),
                                             std::vector<std::byte>(bytes));
  std::vector<Message> to, from;
  for (int r = 0; r < comm->size; ++r) {
    to.push_back({r, const_cast<std::byte*>(own(r)), bytes});
    from.push_back({r, inputs[static_cast<std::size_t>(r)].data(), bytes});
  }
  if (!exchange(comm, operation, to, from)) return;
  std::vector<const std::byte*> all;
  for (const auto& input : inputs) all.push_back(input.data());
  farandole::reduce(all, std::span(&out, 1), count, dtype, op);
}

void multiply(const void* in, void* out, std::size_t count, ncclDataType_t type, double factor) {
  const auto each = [&](auto typed) {
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&typed, bytes_at(in, i * sizeof typed), sizeof typed);
      typed = static_cast<decltype(typed)>(typed * factor);
      std::memcpy(bytes_at(out, i * sizeof typed), &typed, sizeof typed);
    }
  };
  type == ncclFloat32 ? each(0.0F) : each(0.0);
}

// GPU_DOUBLE_ASYNC_ERROR=N: the Nth collective fails as NCCL does when the network to a rank breaks.
bool breaks(ncclComm* comm) {
  const char* const text = std::getenv("GPU_DOUBLE_ASYNC_ERROR");
  return text != nullptr && std::atoi(text) == ++comm->collectives;
}

bool waits_for_others(const ncclComm* comm) {
  if (comm->shared->attached < comm->size || (comm->finalized && comm->shared->finalizing < comm->size))
    return true;
  return std::any_of(comm->kinds.begin(), comm->kinds.end(), [&](Kind kind) {
    return comm->shared->connecting[static_cast<int>(kind)] < comm->size;
  });
}

void launch(const Queued& item) {
  auto* const comm = item.comm;
  if (comm->kinds.insert(item.kind).second) ++comm->shared->connecting[static_cast<int>(item.kind)];
  const auto operation = ++comm->operations;
  const bool broken = breaks(comm);
  ++comm->running;
  gpu_double::run_on(item.stream, item.accesses, [=](const auto&) {
    if (broken) {
      comm->state = ncclRemoteError;
      while (!comm->aborted) std::this_thread::yield();
    } else {
      item.work(operation);
    }
    --comm->running;
  });
  comm->pretended = 3;
}

ncclResult_t add(ncclComm* comm, Kind kind, CUstream_st* stream, std::vector<gpu_double::Access> accesses,
                 std::function<void(std::uint64_t)> work) {
  queued.push_back({comm, kind, stream, std::move(accesses), std::move(work)});
  if (groups > 0) return ncclSuccess;
  launch(queued.back());
  queued.clear();
  return ncclInProgress;
}

}  // namespace

#define FAIL_IF_ASKED(name) \
  if (gpu_double::fails(name)) return ncclSystemError

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an injected NCCL error";
}

const char* ncclGetLastError(ncclComm_t) {
  return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FAIL_IF_ASKED("ncclGetUniqueId");
  const Id own{::getpid(), ::memfd_create("nccl double", 0)};
  if (own.file < 0 || ::ftruncate(own.file, sizeof(Shared)) != 0) return ncclSystemError;
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  FAIL_IF_ASKED("ncclCommInitRankConfig");
  if (size > most_ranks || config->blocking != 0) return ncclInvalidArgument;
  Id where{};
  std::memcpy(&where, &id, sizeof where);
  const auto path = "/proc/" + std::to_string(where.pid) + "/fd/" + std::to_string(where.file);
  const int file = ::open(path.c_str(), O_RDWR);
  void* const memory =
      file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  *comm = new ncclComm;
  (*comm)->shared = static_cast<Shared*>(memory);
  (*comm)->rank = rank;
  (*comm)->size = size;
  ++(*comm)->shared->attached;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FAIL_IF_ASKED("ncclCommGetAsyncError");
  *state = static_cast<ncclResult_t>(comm->state.load());
  if (*state == ncclSuccess && (waits_for_others(comm) || comm->pretended > 0)) *state = ncclInProgress;
  if (comm->pretended > 0) --comm->pretended;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FAIL_IF_ASKED("ncclCommFinalize");
  comm->finalized = true;
  ++comm->shared->finalizing;
  comm->pretended = 3;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  while (comm->running > 0) std::this_thread::yield();
  ::munmap(comm->shared, sizeof(Shared));
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  FAIL_IF_ASKED("ncclMemAlloc");
  *memory = gpu_double::allocate(bytes);
  return ncclSuccess;
}

// Unlike cudaFree, it does not wait.
ncclResult_t ncclMemFree(void* memory) {
  gpu_double::release(memory);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* memory, std::size_t, void** handle) {
  FAIL_IF_ASKED("ncclCommRegister");
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return comm->aborted ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  FAIL_IF_ASKED("ncclGroupStart");
  ++groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--groups > 0) return ncclSuccess;
  for (const auto& item : queued) launch(item);
  queued.clear();
  FAIL_IF_ASKED("ncclGroupEnd");
  return ncclInProgress;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t where, ncclComm_t comm) {
  FAIL_IF_ASKED("ncclRedOpCreatePreMulSum");
  if (where != ncclScalarHostImmediate || (type != ncclFloat32 && type != ncclFloat64))
    return ncclInvalidArgument;
  comm->factors.push_back(type == ncclFloat32 ? *static_cast<float*>(scalar) : *static_cast<double*>(scalar));
  *op = static_cast<ncclRedOp_t>(ncclNumOps + comm->factors.size() - 1);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  FAIL_IF_ASKED("ncclRedOpDestroy");
  comm->factors.at(static_cast<std::size_t>(op) - ncclNumOps) = 0;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED("ncclAllReduce");
  const auto bytes = count * size_of(dtype_of(type));
  if (multiplies(op)) {
    const auto index = static_cast<std::size_t>(op) - ncclNumOps;
    if (index >= comm->factors.size() || comm->factors[index] == 0) return ncclInvalidArgument;
    gpu_double::run_on(
        stream, {{in, bytes, false}, {out, bytes, true}},
        [=, factor = comm->factors[index]](const auto&) { multiply(in, out, count, type, factor); });
    in = out;
  }
  return add(comm, Kind::all_reduce, stream, {{in, bytes, false}, {out, bytes, true}},
             [=](std::uint64_t operation) {
               reduce_for(
                   comm, operation, [=](int) { return bytes_at(in); }, bytes_at(out), count, dtype_of(type),
                   op_of(op));
             });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED("ncclReduceScatter");
  const auto bytes = count * size_of(dtype_of(type));
  const auto all = bytes * static_cast<std::size_t>(comm->size);
  std::optional<double> factor;
  if (multiplies(op)) {
    const auto index = static_cast<std::size_t>(op) - ncclNumOps;
    if (index >= comm->factors.size() || comm->factors[index] == 0) return ncclInvalidArgument;
    factor = comm->factors[index];
  }
  return add(comm, Kind::reduce_scatter, stream, {{in, all, false}, {out, bytes, true}},
             [=](std::uint64_t operation) {
               std::vector<std::byte> multiplied(factor ? all : 0);
               if (factor)
                 multiply(in, multiplied.data(), count * static_cast<std::size_t>(comm->size), type, *factor);
               const auto* const own = factor ? multiplied.data() : bytes_at(in);
               reduce_for(
                   comm, operation, [=](int r) { return own + static_cast<std::size_t>(r) * bytes; },
                   bytes_at(out), count, dtype_of(type), op_of(op));
             });
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  FAIL_IF_ASKED("ncclBroadcast");
  const auto bytes = count * size_of(dtype_of(type));
  return add(comm, Kind::broadcast, stream, {{in, comm->rank == root ? bytes : 0, false}, {out, bytes, true}},
             [=](std::uint64_t operation) {
               std::vector<Message> to, from;
               if (comm->rank != root) {
                 from.push_back({root, bytes_at(out), bytes});
               } else {
                 if (in != out) std::memcpy(out, in, bytes);
                 for (int r = 0; r < comm->size; ++r)
                   if (r != root) to.push_back({r, bytes_at(out), bytes});
               }
               exchange(comm, operation, to, from);
             });
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  FAIL_IF_ASKED("ncclAllGather");
  const auto bytes = count * size_of(dtype_of(type));
  const auto all = bytes * static_cast<std::size_t>(comm->size);
  return add(comm, Kind::all_gather, stream, {{in, bytes, false}, {out, all, true}},
             [=](std::uint64_t operation) {
               std::vector<Message> to, from;
               for (int r = 0; r < comm->size; ++r) {
                 auto* const part = bytes_at(out, static_cast<std::size_t>(r) * bytes);
                 if (r == comm->rank && part != in) std::memcpy(part, in, bytes);
                 if (r == comm->rank) continue;
                 to.push_back({r, bytes_at(in), bytes});
                 from.push_back({r, part, bytes});
               }
               exchange(comm, operation, to, from);
             });
}

}  // extern "C"
