// Notices that the program changes parameters between steps.
// Thread safety: call from the training thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <torch/types.h>
#include <vector>

namespace farandole {

class ChangesByHand {
 public:
  // Changes up to now are not the program's.
  void expect(const std::vector<torch::Tensor>& parameters) {
    versions_.clear();
    for (const auto& parameter : parameters) versions_.push_back(parameter._version());
  }
  // Call this when a step begins. Returns true once: when the program has changed parameters before two
  // steps. Before one step it may have loaded them.
  bool are_repeated(const std::vector<torch::Tensor>& parameters) {
    bool changed = false;
    for (std::size_t i = 0; i < versions_.size(); ++i) changed |= parameters[i]._version() != versions_[i];
    return changed && ++steps_ == 2;
  }

 private:
  std::vector<std::int64_t> versions_;
  int steps_ = 0;
};

}  // namespace farandole
