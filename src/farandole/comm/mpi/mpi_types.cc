#include "farandole/comm/mpi/mpi_types.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {
namespace {

struct Sum {
  auto operator()(auto a, auto b) const { return a + b; }
};
// a != a is true for a NaN, so a NaN is returned. MPI_MIN and MPI_MAX drop it, or not, as the ranks'
// order has it.
struct Min {
  auto operator()(auto a, auto b) const { return a < b || a != a ? a : b; }
};
struct Max {
  auto operator()(auto a, auto b) const { return a > b || a != a ? a : b; }
};
struct Product {
  auto operator()(auto a, auto b) const { return a * b; }
};

template <class T, class Function>
void reduce_floats(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    if constexpr (sizeof(T) == 2)
      from_float(Function{}(to_float(from[i]), to_float(to[i])), to[i]);
    else
      to[i] = Function{}(from[i], to[i]);
}

struct OwnOp {
  ReduceOp op;
  DType dtype;
  MPI_User_function* function;
};
constexpr OwnOp own_ops[] = {
    {ReduceOp::sum, DType::float16, reduce_floats<Float16, Sum>},
    {ReduceOp::sum, DType::bfloat16, reduce_floats<BFloat16, Sum>},
    {ReduceOp::min, DType::float16, reduce_floats<Float16, Min>},
    {ReduceOp::min, DType::bfloat16, reduce_floats<BFloat16, Min>},
    {ReduceOp::min, DType::float32, reduce_floats<float, Min>},
    {ReduceOp::min, DType::float64, reduce_floats<double, Min>},
    {ReduceOp::max, DType::float16, reduce_floats<Float16, Max>},
    {ReduceOp::max, DType::bfloat16, reduce_floats<BFloat16, Max>},
    {ReduceOp::max, DType::float32, reduce_floats<float, Max>},
    {ReduceOp::max, DType::float64, reduce_floats<double, Max>},
    {ReduceOp::product, DType::float16, reduce_floats<Float16, Product>},
    {ReduceOp::product, DType::bfloat16, reduce_floats<BFloat16, Product>},
};

}  // namespace

MpiTypes::MpiTypes() : ops_(std::size(own_ops)) {
  for (std::size_t i = 0; i < ops_.size(); ++i)
    check_mpi(MPI_Op_create(own_ops[i].function, /*commute=*/1, &ops_[i]), "MPI_Op_create");
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
  if (op == ReduceOp::average) op = ReduceOp::sum;
  const auto* const own = std::find_if(std::begin(own_ops), std::end(own_ops),
                                       [&](const OwnOp& one) { return one.op == op && one.dtype == dtype; });
  if (own != std::end(own_ops)) return ops_[static_cast<std::size_t>(own - own_ops)];
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

}  // namespace farandole
