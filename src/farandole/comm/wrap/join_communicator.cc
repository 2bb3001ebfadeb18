#include "farandole/comm/wrap/join_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <type_traits>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

template <class T>
T neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  constexpr T largest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  constexpr T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  switch (op) {
    case ReduceOp::min:
      return largest;
    case ReduceOp::max:
      return least;
    case ReduceOp::product:
      return T(1);
    default:
      return T(0);
  }
}

template <class T>
void fill(void* data, std::size_t count, ReduceOp op) {
  if constexpr (std::is_arithmetic_v<T>) {
    std::fill_n(static_cast<T*>(data), count, neutral<T>(op));
  } else {
    T value{};
    from_float(neutral<float>(op), value);
    std::fill_n(static_cast<T*>(data), count, value);
  }
}

// Fills `data` with the value that does not change the result of the other ranks.
void fill_neutral(void* data, std::size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::float16:
      return fill<Float16>(data, count, op);
    case DType::bfloat16:
      return fill<BFloat16>(data, count, op);
    case DType::float32:
      return fill<float>(data, count, op);
    case DType::float64:
      return fill<double>(data, count, op);
    case DType::int32:
      return fill<std::int32_t>(data, count, op);
    case DType::int64:
      return fill<std::int64_t>(data, count, op);
    case DType::uint8:
      return fill<std::uint8_t>(data, count, op);
    case DType::boolean:
      return fill<bool>(data, count, op);
    case DType::int8:
      return fill<std::int8_t>(data, count, op);
    case DType::int16:
      return fill<std::int16_t>(data, count, op);
  }
}

}  // namespace

struct JoinCommunicator::Announcement {
  std::uint64_t active = 0;
  CallDescriptor call;
};

JoinCommunicator::JoinCommunicator(std::unique_ptr<TracedCommunicator> inner)
    : Communicator(inner->rank, inner->size),
      traced_(inner.get()),
      inner_(std::move(inner)),
      average_over_all_(false),
      active_(size) {}

JoinCommunicator::JoinCommunicator(std::unique_ptr<Communicator> inner)
    : Communicator(inner->rank, inner->size),
      traced_(nullptr),
      inner_(std::move(inner)),
      average_over_all_(true),
      active_(size) {}

bool JoinCommunicator::announces() {
  if (joining_ || traced_ != nullptr) return joining_;
  std::int32_t stopped = stopped_ ? 1 : 0;
  inner_->allreduce("join", &stopped, 1, DType::int32, ReduceOp::max);
  return stopped != 0;
}

// If a call fails, it fails on all ranks, so that no rank waits for the next announcement of the others.
template <class Call>
void JoinCommunicator::or_end(Call call) {
  try {
    call();
  } catch (...) {
    end();
    throw;
  }
}

void JoinCommunicator::end() {
  joining_ = false;
  active_ = size;
}

void JoinCommunicator::join(bool average_over_all) {
  joining_ = true;
  average_over_all_ = average_over_all;
  calls_ = 0;
}

bool JoinCommunicator::announce(std::optional<CallDescriptor> own) {
  Announcement said;
  if (own) {
    said.active = 1;
    said.call = *own;
    said.call.sequence = calls_;
  }
  ++calls_;
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<Announcement> all(ranks);
  const std::vector<std::size_t> bytes(ranks, sizeof said);
  if (traced_ != nullptr) traced_->set_patient(!own);
  inner_->all_gather("join", &said, all.data(), bytes);
  if (traced_ != nullptr) traced_->set_patient(false);
  announced_.clear();
  std::vector<int> who;
  for (int r = 0; r < size; ++r) {
    if (all[static_cast<std::size_t>(r)].active == 0) continue;
    announced_.push_back(all[static_cast<std::size_t>(r)].call);
    who.push_back(r);
  }
  active_ = static_cast<int>(who.size());
  if (who.empty()) return false;
  first_active_ = who.front();
  const auto& call = announced_.front();
  if (std::any_of(announced_.begin(), announced_.end(), [&](const auto& other) { return other != call; }))
    throw UserError(describe_mismatch(announced_, who));
  if (call.operation == Operation::broadcast && std::count(who.begin(), who.end(), call.root) == 0)
    throw UserError(fmt::format(
        "broadcast '{}' from rank {}, which has no more batches; choose a root that is still active",
        call.name, call.root));
  return true;
}

// Sends the sizes from an active rank to the ranks that have stopped.
std::vector<std::size_t> JoinCommunicator::share(std::vector<std::size_t> shares) {
  inner_->broadcast("join shares", shares.data(), shares.size() * sizeof shares[0], first_active_);
  return shares;
}

// Sends own[r] to rank r, and returns what each rank sends to this one.
std::vector<JoinCommunicator::Sizes> JoinCommunicator::exchange(const std::vector<Sizes>& own) {
  std::vector<Sizes> others(own.size());
  const std::vector<std::size_t> one(own.size(), sizeof(Sizes));
  inner_->all_to_all("join sizes", own.data(), one, others.data(), one);
  return others;
}

bool JoinCommunicator::corrects(ReduceOp op) const {
  return op == ReduceOp::average && active_ < size && !average_over_all_;
}

// Corrects an average, which the transport has divided by the number of all ranks.
void JoinCommunicator::correct(void* data, std::size_t count, DType dtype) const {
  scale(data, count, dtype, static_cast<double>(size) / active_);
}

void JoinCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                 ReduceOp op) {
  if (!announces()) return inner_->allreduce(name, data, count, dtype, op);
  if (stopped_) {
    if (announce(std::nullopt)) take_part(announced_.front());
    return;
  }
  or_end([&] {
    announce(allreduce_call(name, count, dtype, op));
    inner_->allreduce(name, data, count, dtype, op);
  });
  if (corrects(op)) correct(data, count, dtype);
}

void JoinCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                  std::span<const std::size_t> bytes_by_rank) {
  if (!announces()) return inner_->all_gather(name, in, out, bytes_by_rank);
  or_end([&] {
    announce(all_gather_call(name, bytes_by_rank));
    share({bytes_by_rank.begin(), bytes_by_rank.end()});
    inner_->all_gather(name, in, out, bytes_by_rank);
  });
}

void JoinCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  if (!announces()) return inner_->broadcast(name, data, bytes, root);
  or_end([&] {
    announce(broadcast_call(name, bytes, root));
    inner_->broadcast(name, data, bytes, root);
  });
}

void JoinCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) {
  if (!announces()) return inner_->reduce_scatter(name, in, out, count_by_rank, dtype, op);
  or_end([&] {
    announce(reduce_scatter_call(name, count_by_rank, dtype, op));
    share({count_by_rank.begin(), count_by_rank.end()});
    inner_->reduce_scatter(name, in, out, count_by_rank, dtype, op);
  });
  if (corrects(op)) correct(out, count_by_rank[static_cast<std::size_t>(rank)], dtype);
}

void JoinCommunicator::all_to_all(std::string_view name, const void* in,
                                  std::span<const std::size_t> send_bytes, void* out,
                                  std::span<const std::size_t> receive_bytes) {
  if (!announces()) return inner_->all_to_all(name, in, send_bytes, out, receive_bytes);
  or_end([&] {
    announce(all_to_all_call(name));
    std::vector<Sizes> own;
    for (std::size_t r = 0; r < send_bytes.size(); ++r) own.push_back({send_bytes[r], receive_bytes[r]});
    exchange(own);
    inner_->all_to_all(name, in, send_bytes, out, receive_bytes);
  });
}

std::size_t JoinCommunicator::shadow() {
  std::size_t calls = 0;
  if (!joining_) return calls;
  or_end([&] {
    for (; announce(std::nullopt); ++calls) take_part(announced_.front());
  });
  end();
  return calls;
}

void JoinCommunicator::take_part(const CallDescriptor& call) {
  const auto ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const std::size_t element = size_of(call.dtype);
  switch (call.operation) {
    case Operation::allreduce:
      unused_.resize(call.elements * element);
      fill_neutral(unused_.data(), call.elements, call.dtype, call.op);
      return inner_->allreduce(call.name, unused_.data(), call.elements, call.dtype, call.op);
    case Operation::broadcast:
      unused_.resize(call.bytes);
      return inner_->broadcast(call.name, unused_.data(), call.bytes, call.root);
    case Operation::all_gather: {
      const auto shares = share(std::vector<std::size_t>(ranks));
      unused_.assign(shares[own], std::byte{0});
      result_.resize(sum(shares));
      return inner_->all_gather(call.name, unused_.data(), result_.data(), shares);
    }
    case Operation::reduce_scatter: {
      const auto shares = share(std::vector<std::size_t>(ranks));
      unused_.resize(call.elements * element);
      fill_neutral(unused_.data(), call.elements, call.dtype, call.op);
      result_.resize(shares[own] * element);
      return inner_->reduce_scatter(call.name, unused_.data(), result_.data(), shares, call.dtype, call.op);
    }
    case Operation::all_to_all: {
      const auto others = exchange(std::vector<Sizes>(ranks));
      std::vector<std::size_t> send, receive;
      for (const auto& other : others) {
        send.push_back(other.from);
        receive.push_back(other.to);
      }
      unused_.assign(sum(send), std::byte{0});
      result_.resize(sum(receive));
      return inner_->all_to_all(call.name, unused_.data(), send, result_.data(), receive);
    }
  }
}

}  // namespace farandole
