#include "farandole/comm/mpi/mpi_types.h"

#include <algorithm>
#include <string>

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {
namespace {

struct Sum {
  float operator()(float a, float b) const { return a + b; }
};
struct Min {
  float operator()(float a, float b) const { return std::min(a, b); }
};
struct Max {
  float operator()(float a, float b) const { return std::max(a, b); }
};
struct Product {
  float operator()(float a, float b) const { return a * b; }
};

template <class T, class Function>
void reduce_16_bit(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) from_float(Function{}(to_float(from[i]), to_float(to[i])), to[i]);
}

template <class T>
void scale_16_bit(T* values, std::size_t count, float factor) {
  for (std::size_t i = 0; i < count; ++i) from_float(to_float(values[i]) * factor, values[i]);
}

// A sum and an average are the same reduction.
int index_16_bit(ReduceOp op, DType dtype) {
  return 2 * std::max(0, static_cast<int>(op) - 1) + (dtype == DType::float16 ? 0 : 1);
}

bool is_floating(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
         dtype == DType::float64;
}

}  // namespace

MpiTypes::MpiTypes() {
  MPI_User_function* functions[sixteen_bit_ops] = {
      reduce_16_bit<Float16, Sum>,     reduce_16_bit<BFloat16, Sum>,    reduce_16_bit<Float16, Min>,
      reduce_16_bit<BFloat16, Min>,    reduce_16_bit<Float16, Max>,     reduce_16_bit<BFloat16, Max>,
      reduce_16_bit<Float16, Product>, reduce_16_bit<BFloat16, Product>};
  for (int i = 0; i < sixteen_bit_ops; ++i)
    check_mpi(MPI_Op_create(functions[i], /*commute=*/1, &ops_[i]), "MPI_Op_create");
}

MpiTypes::~MpiTypes() {
  for (auto& op : ops_) MPI_Op_free(&op);
}

MPI_Datatype MpiTypes::type(DType dtype) {
  const MPI_Datatype types[] = {MPI_UINT16_T, MPI_UINT16_T, MPI_FLOAT,   MPI_DOUBLE,
                                MPI_INT32_T,  MPI_INT64_T,  MPI_UINT8_T, MPI_CXX_BOOL};
  return types[static_cast<std::size_t>(dtype)];
}

MPI_Op MpiTypes::op(ReduceOp op, DType dtype) const {
  check_reduction(op, dtype);
  if (size_of(dtype) == 2) return ops_[index_16_bit(op, dtype)];
  const bool logical = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return MPI_SUM;
    case ReduceOp::min:
      return logical ? MPI_LAND : MPI_MIN;
    case ReduceOp::max:
      return logical ? MPI_LOR : MPI_MAX;
    case ReduceOp::product:
      return logical ? MPI_LAND : MPI_PROD;
  }
  return MPI_OP_NULL;
}

void check_reduction(ReduceOp op, DType dtype) {
  if (op == ReduceOp::average && !is_floating(dtype))
    throw UserError("average of " + std::string(name_of(dtype)) +
                    " would truncate; reduce with sum, or convert to float64 first");
  if (op == ReduceOp::sum && dtype == DType::boolean)
    throw UserError(
        "sum of bool is not a bool; reduce with max (any) or min (all), or convert to int64 first");
}

void scale(void* data, std::size_t count, DType dtype, double factor) {
  switch (dtype) {
    case DType::float16:
      return scale_16_bit(static_cast<Float16*>(data), count, static_cast<float>(factor));
    case DType::bfloat16:
      return scale_16_bit(static_cast<BFloat16*>(data), count, static_cast<float>(factor));
    case DType::float32: {
      auto* values = static_cast<float*>(data);
      for (std::size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(factor);
      return;
    }
    case DType::float64: {
      auto* values = static_cast<double*>(data);
      for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
      return;
    }
    default:
      throw UserError("only floating-point types can be scaled");
  }
}

}  // namespace farandole
