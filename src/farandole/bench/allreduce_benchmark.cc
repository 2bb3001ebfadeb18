#include "farandole/bench/allreduce_benchmark.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <mpi.h>

#include "farandole/base/clock.h"
#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_types.h"

namespace farandole {
namespace {

constexpr std::size_t beyond_caches = std::size_t{128} << 20;
constexpr double batch_us = 2000;  // Approximate length of a batch of calls that is timed together.
constexpr int most_calls = 1000;
constexpr std::size_t small_bytes = std::size_t{1} << 20;

Buffer private_memory(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{4096}));
  std::memset(memory, 0, bytes);
  return Buffer(memory, [](std::byte* data) { ::operator delete[](data, std::align_val_t{4096}); });
}

// Open MPI reads mpi_yield_when_idle only once. This function sets the switch that the option controls.
using YieldSwitch = bool (*)(bool);
YieldSwitch yield_switch() {
  return reinterpret_cast<YieldSwitch>(::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
}

// One implementation of allreduce with its own buffers.
struct Contender {
  Sample* result;
  std::function<Buffer()> allocate;
  std::function<void(std::byte*)> call;
  std::vector<Buffer> buffers{};
  std::size_t next = 0;
  int calls = 1;  // Calls per batch.

  std::byte* buffer() {
    next = (next + 1) % buffers.size();
    return buffers[next].get();
  }
};

class Round {
 public:
  Round(const MpiJob& job, Communicator& ours, AllreduceResult& result)
      : ours_(ours), result_(result), size_(static_cast<std::size_t>(job.layout().size)) {
    const std::size_t bytes = result.bytes;
    const std::size_t count = bytes / size_of(result.dtype);
    const auto reduce_ours = [this, count](std::byte* data) {
      ours_.allreduce("bench", data, count, result_.dtype, result_.op);
    };
    const auto reduce_mpi = [this, count](std::byte* data) {
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MpiTypes::type(result_.dtype),
                              types_.op(result_.op, result_.dtype), MPI_COMM_WORLD),
                "MPI_Allreduce");
    };
    const auto anywhere = [bytes] { return private_memory(bytes); };
    contenders_.push_back({&result.registered, [this, bytes] { return ours_.allocate(bytes); }, reduce_ours});
    contenders_.push_back({&result.unregistered, anywhere, reduce_ours});
    contenders_.push_back({&result.mpi_spin, anywhere, reduce_mpi});
    if (yield_switch() != nullptr) contenders_.push_back({&result.mpi_yield, anywhere, reduce_mpi});
    contenders_.push_back({&result.limit, anywhere, [this, count](std::byte* data) { move(data, count); }});
    const std::size_t copies =
        result.buffers == Buffers::cold ? std::clamp<std::size_t>(beyond_caches / bytes, 1, most_calls) : 1;
    for (auto& contender : contenders_)
      while (contender.buffers.size() < copies) contender.buffers.push_back(contender.allocate());
  }

  void run(int repetitions) {
    for (auto& contender : contenders_) calibrate(contender);
    for (int i = 0; i < repetitions; ++i)
      for (auto& contender : contenders_) contender.result->us.push_back(measure(contender));
  }

 private:
  // A rank's share of the minimum traffic: it reads one line of each rank's input and writes one
  // line of each output.
  void move(std::byte* data, std::size_t count) {
    const std::size_t part = count / size_ * size_of(result_.dtype);
    std::vector<std::byte*> places;
    for (std::size_t r = 0; r < size_; ++r) places.push_back(data + r * part);
    reduce({const_cast<const std::byte* const*>(places.data()), size_}, places, count / size_, result_.dtype,
           result_.op);
  }

  void calibrate(Contender& contender) {
    for (std::size_t i = 0; i < contender.buffers.size(); ++i)
      contender.call(contender.buffer());  // Loads pages, caches and code paths.
    contender.calls = result_.bytes < small_bytes ? 20 : 2;
    double us = std::min(measure(contender), measure(contender));
    MPI_Bcast(&us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    contender.calls = static_cast<int>(std::clamp(batch_us / us, 1.0, double{most_calls}));
  }

  // Returns the mean over the ranks. The ranks start together; otherwise a rank that spins in MPI could take
  // the core of a rank that is still in the barrier.
  double measure(Contender& contender) {
    const auto set_yield = yield_switch();
    if (set_yield != nullptr) set_yield(true);
    MPI_Barrier(MPI_COMM_WORLD);
    contender.call(contender.buffer());
    if (set_yield != nullptr) set_yield(contender.result == &result_.mpi_yield);
    const std::int64_t ns =
        result_.buffers == Buffers::written ? time_written(contender) : time_batch(contender);
    if (set_yield != nullptr) set_yield(true);
    double us = static_cast<double>(ns) * 1e-3 / contender.calls;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    return us / static_cast<double>(size_);
  }

  static std::int64_t time_batch(Contender& contender) {
    const std::int64_t start = now_ns();
    for (int i = 0; i < contender.calls; ++i) contender.call(contender.buffer());
    return now_ns() - start;
  }

  std::int64_t time_written(Contender& contender) const {
    std::int64_t sum = 0;
    for (int i = 0; i < contender.calls; ++i) {
      std::byte* const data = contender.buffer();
      std::memset(data, 0, result_.bytes);
      const std::int64_t start = now_ns();
      contender.call(data);
      sum += now_ns() - start;
    }
    return sum;
  }

  Communicator& ours_;
  AllreduceResult& result_;
  const std::size_t size_;
  MpiTypes types_;
  std::vector<Contender> contenders_;
};

}  // namespace

std::string_view name_of(Buffers buffers) {
  return buffers == Buffers::warm ? "warm" : buffers == Buffers::written ? "written" : "cold";
}

const Sample& AllreduceResult::mpi() const {
  return mpi_yield.empty() || mpi_spin.median() < mpi_yield.median() ? mpi_spin : mpi_yield;
}

double AllreduceResult::algbw_gbps(const Sample& sample) const {
  return static_cast<double>(bytes) / sample.median() * 1e-3;
}

double AllreduceResult::busbw_gbps(const Sample& sample) const {
  return algbw_gbps(sample) * 2 * (ranks - 1) / ranks;
}

std::vector<AllreduceResult> benchmark_allreduce(const MpiJob& job, const AllreduceBenchmarkOptions& options,
                                                 const std::function<void(const AllreduceResult&)>& each) {
  const auto ours = job.new_communicator(Waiting::spin);
  std::vector<AllreduceResult> results;
  for (const auto dtype : options.dtypes) {
    for (const auto buffers : options.buffers) {
      for (std::size_t bytes = options.smallest_bytes; bytes <= options.largest_bytes;
           bytes *= options.factor) {
        auto& result = results.emplace_back();
        result.ranks = job.layout().size;
        result.bytes = bytes;
        result.dtype = dtype;
        result.op = options.op;
        result.buffers = buffers;
        Round(job, *ours, result).run(options.repetitions);
        each(result);
      }
    }
  }
  return results;
}

}  // namespace farandole
