#include "farandole/bench/allreduce_benchmark.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <mpi.h>

#include "farandole/base/clock.h"
#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_communicator.h"

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

// A collective on one buffer: of `bytes` bytes, or of twice as many if its output is not in place.
class Calls {
 public:
  Calls(Communicator& ours, const AllreduceResult& what)
      : ours_(ours),
        what_(what),
        rank_(static_cast<std::size_t>(ours.rank)),
        count_(what.bytes / size_of(what.dtype)),
        counts_(share(count_, what.ranks)) {
    std::size_t offset = 0;
    for (const std::size_t count : counts_) {
      bytes_.push_back(count * size_of(what.dtype));
      mpi_counts_.push_back(static_cast<int>(bytes_.back()));
      mpi_elements_.push_back(static_cast<int>(count));
      mpi_offsets_.push_back(static_cast<int>(offset));
      offset += bytes_.back();
    }
  }

  std::size_t buffer_bytes() const {
    const bool in_place = what_.collective == Operation::allreduce ||
                          what_.collective == Operation::broadcast ||
                          what_.collective == Operation::all_gather;
    return in_place ? what_.bytes : 2 * what_.bytes;
  }

  void ours(std::byte* data) {
    switch (what_.collective) {
      case Operation::allreduce:
        return ours_.allreduce("bench", data, count_, what_.dtype, what_.op);
      case Operation::broadcast:
        return ours_.broadcast("bench", data, what_.bytes, next_root());
      case Operation::all_gather:
        return ours_.all_gather("bench", data + mpi_offsets_[rank_], data, bytes_);
      case Operation::reduce_scatter:
        return ours_.reduce_scatter("bench", data, data + what_.bytes, counts_, what_.dtype, what_.op);
      case Operation::all_to_all:
        return ours_.all_to_all("bench", data, sent_, data + what_.bytes, sent_);
    }
  }

  void mpi(std::byte* data) {
    const auto type = MpiTypes::type(what_.dtype);
    const auto op = types_.op(what_.op, what_.dtype);
    switch (what_.collective) {
      case Operation::allreduce:
        return check_mpi(
            MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count_), type, op, MPI_COMM_WORLD),
            "MPI_Allreduce");
      case Operation::broadcast:
        return check_mpi(
            MPI_Bcast(data, static_cast<int>(what_.bytes), MPI_BYTE, next_root(), MPI_COMM_WORLD),
            "MPI_Bcast");
      case Operation::all_gather:
        return check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, mpi_counts_.data(),
                                        mpi_offsets_.data(), MPI_BYTE, MPI_COMM_WORLD),
                         "MPI_Allgatherv");
      case Operation::reduce_scatter:
        return check_mpi(
            MPI_Reduce_scatter(data, data + what_.bytes, mpi_elements_.data(), type, op, MPI_COMM_WORLD),
            "MPI_Reduce_scatter");
      case Operation::all_to_all: {
        const auto sent = static_cast<int>(sent_[0]);
        return check_mpi(
            MPI_Alltoall(data, sent, MPI_BYTE, data + what_.bytes, sent, MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Alltoall");
      }
    }
  }

 private:
  // Another root in each call, so that the next call begins when the message has arrived.
  int next_root() { return root_ = (root_ + 1) % what_.ranks; }
  static std::vector<std::size_t> share(std::size_t count, int ranks) {
    std::vector<std::size_t> counts;
    const auto size = static_cast<std::size_t>(ranks);
    for (std::size_t r = 0; r < size; ++r) counts.push_back(count * (r + 1) / size - count * r / size);
    return counts;
  }

  Communicator& ours_;
  const AllreduceResult& what_;
  const std::size_t rank_;
  const std::size_t count_;
  const std::vector<std::size_t> counts_;  // elements by rank
  std::vector<std::size_t> bytes_;         // bytes by rank
  // Bytes that a rank sends to each rank in an all-to-all.
  const std::vector<std::size_t> sent_ =
      std::vector<std::size_t>(counts_.size(), what_.bytes / counts_.size());
  std::vector<int> mpi_counts_, mpi_elements_, mpi_offsets_;
  int root_ = 0;
  MpiTypes types_;
};

class Round {
 public:
  Round(World& job, Communicator& ours, AllreduceResult& result)
      : calls_(ours, result), result_(result), size_(static_cast<std::size_t>(job.layout().size)) {
    const std::size_t bytes = calls_.buffer_bytes();
    const auto call_ours = [this](std::byte* data) { calls_.ours(data); };
    const auto call_mpi = [this](std::byte* data) { calls_.mpi(data); };
    const auto anywhere = [bytes] { return private_memory(bytes); };
    contenders_.push_back({&result.registered, [&ours, bytes] { return ours.allocate(bytes); }, call_ours});
    contenders_.push_back({&result.unregistered, anywhere, call_ours});
    contenders_.push_back({&result.mpi_spin, anywhere, call_mpi});
    if (yield_switch() != nullptr) contenders_.push_back({&result.mpi_yield, anywhere, call_mpi});
    if (result.collective == Operation::allreduce)
      contenders_.push_back({&result.limit, anywhere, [this](std::byte* data) { move(data); }});
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
  void move(std::byte* data) {
    const std::size_t count = result_.bytes / size_of(result_.dtype);
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
    if (set_yield != nullptr) set_yield(contender.result != &result_.mpi_spin);
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

  // The barrier keeps the time in which a rank waits for the writes of another one out of the measurement.
  std::int64_t time_written(Contender& contender) const {
    std::int64_t sum = 0;
    for (int i = 0; i < contender.calls; ++i) {
      std::byte* const data = contender.buffer();
      std::memset(data, 0, result_.bytes);
      MPI_Barrier(MPI_COMM_WORLD);
      const std::int64_t start = now_ns();
      contender.call(data);
      sum += now_ns() - start;
    }
    return sum;
  }

  Calls calls_;
  AllreduceResult& result_;
  const std::size_t size_;
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
  if (collective == Operation::broadcast) return algbw_gbps(sample);
  return algbw_gbps(sample) * (collective == Operation::allreduce ? 2 : 1) * (ranks - 1) / ranks;
}

std::vector<AllreduceResult> benchmark_allreduce(World& job, const AllreduceBenchmarkOptions& options,
                                                 const std::function<void(const AllreduceResult&)>& each) {
  const auto ours = job.new_communicator(Waiting::spin);
  std::vector<AllreduceResult> results;
  for (const auto collective : options.collectives) {
    for (const auto dtype : options.dtypes) {
      for (const auto buffers : options.buffers) {
        for (std::size_t bytes = options.smallest_bytes; bytes <= options.largest_bytes;
             bytes *= options.factor) {
          auto& result = results.emplace_back();
          result.collective = collective;
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
  }
  return results;
}

}  // namespace farandole
