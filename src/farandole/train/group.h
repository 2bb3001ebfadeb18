// Some of the job's ranks with their own collectives. Session::new_group creates it.
// Thread safety: call from the training thread only.
#pragma once

#include <memory>
#include <vector>

#include "farandole/train/tensor_collectives.h"

namespace farandole {

class RankGroup;

// rank() and size() refer to the group; rank i of the group is rank ranks()[i] of the job.
class Group : public TensorCollectives {
 public:
  ~Group();
  const std::vector<int>& ranks() const;

 private:
  friend class Session;
  Group(std::unique_ptr<RankGroup> ranks, std::unique_ptr<Internals> internals);

  const std::unique_ptr<RankGroup> ranks_;
};

}  // namespace farandole
