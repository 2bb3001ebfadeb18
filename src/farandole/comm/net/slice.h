// The data of a rank during a collective between nodes.
#pragma once

#include <cstddef>

#include "farandole/base/dtype.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

// How values travel between nodes.
enum class Wire {
  exact,
  bfloat16,  // rounded to bfloat16. All ranks get the same bits.
};

// The data that a rank sends and receives through its leader group. The functions are called with
// ranges of elements.
// Thread safety: none; use from one thread at a time.
class Slice {
 public:
  virtual ~Slice() = default;
  // Reduces the values of this node's ranks into `data`. Called once for each element before it is sent from
  // there or combined. By default, this node has only one rank.
  virtual void gather(std::size_t /*first*/, std::size_t /*count*/) {}
  // Scales values that are reduced. Called on one node for each element, or on both if there are two.
  virtual void scale(std::size_t /*first*/, std::size_t /*count*/) {}
  // The elements have their final values. Called once for each element that was received or combined;
  // distributes them in the node.
  virtual void finish(std::size_t /*first*/, std::size_t /*count*/) {}
  // The type of the values in messages.
  DType wire_dtype() const { return wire == Wire::bfloat16 ? DType::bfloat16 : dtype; }

  std::byte* data = nullptr;  // of this rank; input and result
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // between nodes; not average
  Wire wire = Wire::exact;      // bfloat16 only for sums of float32
};

}  // namespace farandole
