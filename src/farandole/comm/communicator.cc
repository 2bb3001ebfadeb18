#include "farandole/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "farandole/base/error.h"

namespace farandole {
namespace {

void copy(const void* in, void* out, std::size_t bytes) {
  if (in != out && bytes > 0) std::memcpy(out, in, bytes);
}

bool is_floating(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "average", "min", "max", "product"};
  return names[static_cast<std::size_t>(op)];
}

Buffer private_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  auto* memory = static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), alignment));
  std::memset(memory, 0, bytes);
  return Buffer(memory, [](std::byte* data) { ::operator delete[](data, alignment); });
}

void broadcast_text(Communicator& ranks, std::string& text, int root) {
  std::uint64_t length = text.size();
  ranks.broadcast("length of text", &length, sizeof length, root);
  text.resize(length);
  ranks.broadcast("text", text.data(), length, root);
}

void Communicator::barrier(std::string_view name) {
  std::uint8_t token = 0;
  allreduce(name, &token, 1, DType::uint8, ReduceOp::max);
}

bool can_reduce(ReduceOp op, DType dtype) {
  return !(op == ReduceOp::average && !is_floating(dtype)) &&
         !(op == ReduceOp::sum && dtype == DType::boolean);
}

void check_reduction(ReduceOp op, DType dtype) {
  if (can_reduce(op, dtype)) return;
  if (op == ReduceOp::average)
    throw UserError("average of " + std::string(name_of(dtype)) +
                    " would truncate; reduce with sum, or convert to float64 first");
  throw UserError("sum of bool is not a bool; reduce with max (any) or min (all), or convert to int64 first");
}

void check_root(int root, int size) {
  if (root < 0 || root >= size)
    throw UserError("broadcast from rank " + std::to_string(root) + ", but there are only the ranks 0 to " +
                    std::to_string(size - 1) + "; in a group, give the rank within the group");
}

void SoloCommunicator::allreduce(std::string_view, void*, std::size_t, DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
}

void SoloCommunicator::all_gather(std::string_view, const void* in, void* out,
                                  std::span<const std::size_t> bytes_by_rank) {
  copy(in, out, bytes_by_rank[0]);
}

void SoloCommunicator::broadcast(std::string_view, void*, std::size_t, int root) {
  check_root(root, size);
}

void SoloCommunicator::reduce_scatter(std::string_view, const void* in, void* out,
                                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
  copy(in, out, count_by_rank[0] * size_of(dtype));
}

void SoloCommunicator::all_to_all(std::string_view, const void* in, std::span<const std::size_t> send_bytes,
                                  void* out, std::span<const std::size_t>) {
  copy(in, out, send_bytes[0]);
}

Buffer SoloCommunicator::allocate(std::size_t bytes) {
  return private_memory(bytes);
}

void SoloCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) {
  allreduce(name, data, count, dtype, op);
}

}  // namespace farandole
