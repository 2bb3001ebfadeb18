// Refuses training that would go wrong silently: ranks that start with different parameters, and replicas
// that have become different in the end.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <string>
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "farandole/comm/communicator.h"

namespace farandole {

class ReplicaGuard {
 public:
  using NamedParameters = torch::OrderedDict<std::string, torch::Tensor>;
  explicit ReplicaGuard(const NamedParameters& named) : named_(named) {}

  // Before the first step, while gradients may still be reduced: notes what compare_start() compares. Later
  // calls of both do nothing. They cost one pass over the parameters and one message of 16 bytes.
  void note_start(const Communicator& ranks);
  // Throws: UserError on all ranks if their parameters were different at note_start().
  // Collective: every rank of the group must call this in the same order.
  void compare_start(Communicator& ranks);

  const NamedParameters& named() const { return named_; }
  void step_ended();
  bool has_stepped() const { return steps_ > 0; }

  // Compares the parameters, unless the program has changed them on some rank since the last step, for
  // example to evaluate the best of them. Relative differences below 0.001, which the rounding of different
  // processors explains, are only a warning.
  // Throws: UserError on all ranks if the parameters are different.
  // Collective: every rank of the group must call this in the same order.
  void compare_end(Communicator& ranks) const;

 private:
  std::int64_t version() const;  // Changes whenever code changes parameters in place.
  double largest_distance(Communicator& ranks, std::int64_t parameter) const;

  const NamedParameters named_;
  bool compared_ = false;
  std::string start_;
  std::int64_t steps_ = 0, version_ = 0;  // version_: at the end of the last step.
};

}  // namespace farandole
