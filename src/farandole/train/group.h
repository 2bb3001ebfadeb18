// Some of the job's ranks with their own collectives. Session::new_group creates it.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "farandole/train/tensor_collectives.h"

namespace farandole {

class CollectiveEntry;

// rank() and size() refer to the group; rank i of the group is rank ranks()[i] of the job.
class Group : public TensorCollectives {
 public:
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  friend class Session;
  // Each group has this many communicator numbers; each purpose has its own communicator.
  static constexpr std::uint16_t numbers = 8;

  // `setups` may be null.
  Group(std::vector<int> ranks, std::uint16_t number, std::shared_ptr<CollectiveEntry> setups,
        std::unique_ptr<Internals> internals);
  // The last number is that of the setups of the group's communicators.
  static std::uint16_t setup_number(std::uint16_t first) {
    return static_cast<std::uint16_t>(first + numbers - 1);
  }
  // Returns the number of the group's next communicator. Numbers repeat after several optimizers; the first
  // optimizers may no longer exist then.
  std::uint16_t next_number() {
    return static_cast<std::uint16_t>(first_number_ + 1 + made_++ % (numbers - 2));
  }

  const std::vector<int> ranks_;
  const std::uint16_t first_number_;
  const std::shared_ptr<CollectiveEntry> setups_;
  std::uint16_t made_ = 0;
};

}  // namespace farandole
