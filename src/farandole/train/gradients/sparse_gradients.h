// Reduces gradients with few non-zero rows, such as those of embeddings, by gathering these rows.
// Thread safety: call from the training thread only.
//
// A rank sends its rows and their numbers, while a dense reduction transfers the whole table. The cost of
// gathering is rows × ranks; the cost of a dense reduction is the size of the table.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/comm/communicator.h"

namespace farandole {

class SparseGradients {
 public:
  // `communicator` must outlive this object and must not be in use during reduce(). If a gradient is dense,
  // its non-zero rows are used.
  // If `stop_requested` is given, reduce() also asks whether it returns true on any rank.
  SparseGradients(Communicator& communicator, std::vector<std::string> names,
                  std::vector<torch::Tensor> parameters, std::function<bool()> stop_requested = {});
  // Does not change the parameters.
  ~SparseGradients();

  // Each grad() becomes the sum over ranks divided by `divisor`: sparse, coalesced, and bit-wise the same on
  // every rank. It is undefined if no rank has a gradient.
  // Collective: every rank of the group must call this in the same order.
  void reduce(double divisor);
  // The first parameter whose reduced gradient is not finite; the same on all ranks.
  std::optional<std::size_t> first_nonfinite() const { return first_nonfinite_; }
  // The same for the gradients of this rank before they were reduced.
  std::optional<std::size_t> first_nonfinite_here() const { return first_nonfinite_here_; }
  bool stopping() const { return stopping_; }  // It did; the same on all ranks.
  void clear();                                // Makes all gradients undefined.
  void scale(double factor);
  double norm() const;  // Norm of all gradients together.
  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  void gather(std::size_t parameter, const torch::Tensor& own, const std::vector<std::int64_t>& rows_by_rank,
              double divisor);

  Communicator& communicator_;
  const std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  const std::function<bool()> stop_requested_;
  bool stopping_ = false;
  ScratchBuffer gathered_;
  std::optional<std::size_t> first_nonfinite_, first_nonfinite_here_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace farandole
