#include "farandole/comm/ipc/stream_meeting.h"

#include <atomic>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/cuda_functions.h"

namespace farandole {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t row_bytes = 4096;
constexpr std::size_t rows_bytes = std::size_t{2} << 20;
constexpr int most_rows = row_bytes / line_bytes - 1;  // the first line has the token of the arena
// Later than all meetings that may be queued.
constexpr std::uint32_t far_away = 1u << 30;
constexpr std::uint32_t has_left = 1;

}  // namespace

struct StreamMeeting::Driver {
  explicit Driver(const CudaFunctions& cuda) {
    find(cuda, write, "cuStreamWriteValue32");
    find(cuda, wait, "cuStreamWaitValue32");
  }

  template <class Function>
  static void find(const CudaFunctions& cuda, Function& function, const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    constexpr unsigned cuda_12 = 12000;  // in which these functions got their present form
    cuda.check(cuda.get_driver_entry_point(name, &found, cuda_12, cudaEnableDefault, &result),
               "cudaGetDriverEntryPointByVersion");
    if (found == nullptr)
      throw UserError(
          fmt::format("the driver of the GPU has no {}; install a driver for CUDA 12 or later, or "
                      "give each rank a GPU",
                      name));
    function = reinterpret_cast<Function>(found);
  }

  decltype(&cuStreamWriteValue32) write;
  decltype(&cuStreamWaitValue32) wait;
};

StreamMeeting::StreamMeeting(Communicator& bootstrap, std::shared_ptr<const GpuRuntime> runtime)
    : rank_(bootstrap.rank),
      size_(bootstrap.size),
      runtime_(std::move(runtime)),
      driver_(std::make_unique<Driver>(runtime_->functions())),
      memory_(bootstrap, row_bytes, rows_bytes) {
  if (size_ > most_rows) throw UserError(fmt::format("at most {} ranks can share GPUs", most_rows));
  const auto& cuda = runtime_->functions();
  for (int r = 0; r < size_; ++r) {
    void* there = nullptr;
    cuda.check(cuda.host_register(memory_.base(r), row_bytes, cudaHostRegisterMapped), "cudaHostRegister");
    cuda.check(cuda.host_get_device_pointer(&there, memory_.base(r), 0), "cudaHostGetDevicePointer");
    rows_.push_back(reinterpret_cast<std::uint64_t>(there));
  }
}

StreamMeeting::~StreamMeeting() {
  for (std::size_t r = 0; r < rows_.size(); ++r)
    runtime_->functions().host_unregister(memory_.base(static_cast<int>(r)));
}

// A rank waits only for the others, so its own counter in its own row can say whether it has left.
std::uint32_t* StreamMeeting::counter(int row, int of) const {
  return reinterpret_cast<std::uint32_t*>(memory_.base(row) + static_cast<std::size_t>(of + 1) * line_bytes);
}

std::uint64_t StreamMeeting::on_device(int row, int of) const {
  return rows_[static_cast<std::size_t>(row)] + static_cast<std::size_t>(of + 1) * line_bytes;
}

// The driver's codes are those of the runtime.
void StreamMeeting::check(int result, const char* call) const {
  runtime_->functions().check(static_cast<cudaError_t>(result), call);
}

void StreamMeeting::meet(CUstream_st* stream) {
  ++meetings_;
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      check(driver_->write(stream, on_device(r, rank_), meetings_, CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue32");
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      check(driver_->wait(stream, on_device(rank_, r), meetings_, CU_STREAM_WAIT_VALUE_GEQ),
            "cuStreamWaitValue32");
}

void StreamMeeting::abort() {
  for (int r = 0; r < size_; ++r)
    if (r != rank_) std::atomic_ref(*counter(rank_, r)).store(meetings_ + far_away);
}

void StreamMeeting::leave() {
  std::atomic_ref(*counter(rank_, rank_)).store(has_left);
}

bool StreamMeeting::all_have_left() const {
  for (int r = 0; r < size_; ++r)
    if (std::atomic_ref(*counter(r, r)).load() != has_left) return false;
  return true;
}

}  // namespace farandole
