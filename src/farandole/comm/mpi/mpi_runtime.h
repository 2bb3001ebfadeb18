// MPI, where it moves tensors between the nodes of a job: from its start to its end.
// Thread safety: only the main thread may create and destroy this. Any thread may call its functions.
#pragma once

#include <functional>
#include <mpi.h>
#include <span>
#include <string>

#include "farandole/comm/mpi/mpi_communicator.h"

namespace farandole {

class MpiRuntime {
 public:
  // Starts MPI, unless the program has done so.
  // Throws: UserError if MPI has another number of ranks than `size`, or if the program's MPI does not let
  // several threads communicate. Error if it cannot start.
  explicit MpiRuntime(int size);
  // Ends MPI, unless the program has started it.
  // Collective: every rank of the job must call this in the same order.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  // A communicator of these ranks of the job, in this order. The caller frees it.
  // Collective: every rank of the list must call this in the same order.
  MPI_Comm group_of(std::span<const int> ranks) const;
  const MpiTypes& types() const { return types_; }
  // Calls this when the program ends MPI before this object does, while MPI still works. The function may
  // destroy this object. The last one replaces the others.
  void before_finalize(std::function<void()> function) { life_.before_finalize = std::move(function); }

 private:
  struct Life {
    explicit Life(int size);
    ~Life();
    std::function<void()> before_finalize;

   private:
    bool is_own_ = true;  // else the program has started MPI, or ends it
    int attribute_ = MPI_KEYVAL_INVALID;
  };

  Life life_;
  MpiTypes types_;
};

}  // namespace farandole
