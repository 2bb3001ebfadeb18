// Element types and reductions in MPI's terms, with own reductions where MPI has none (16-bit floats) or
// another (min and max of a NaN).
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <mpi.h>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// Owns the MPI_Ops. It must live between MPI_Init and MPI_Finalize.
class MpiTypes {
 public:
  MpiTypes();
  ~MpiTypes();
  MpiTypes(const MpiTypes&) = delete;
  MpiTypes& operator=(const MpiTypes&) = delete;

  static MPI_Datatype type(DType dtype);
  // For average this is a sum, which the caller must scale.
  // Throws: UserError if the type does not have the operation.
  MPI_Op op(ReduceOp op, DType dtype) const;

 private:
  std::vector<MPI_Op> ops_;
};

}  // namespace farandole
