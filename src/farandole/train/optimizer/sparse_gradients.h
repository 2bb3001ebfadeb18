// Gradients of which few rows are not zero, as those of embeddings, reduced by gathering these rows. Used by
// the training thread.
//
// A reduction sends, a rank, its rows and their numbers, where a dense one touches the whole table: gathering
// costs rows × ranks, the table only its size.
#pragma once

#include <cstddef>
#include <string>
#include <torch/torch.h>
#include <vector>

#include "farandole/comm/scratch_buffer.h"

namespace farandole {

class SparseGradients {
 public:
  // `communicator` outlives this and is free during reduce(). Gradients that come dense are taken as the rows
  // of them that are not zero.
  SparseGradients(Communicator& communicator, std::vector<std::string> names,
                  std::vector<torch::Tensor> parameters);
  // Leaves the parameters as they are.
  ~SparseGradients();

  // Each grad() becomes the sum over ranks divided by `divisor`: sparse, coalesced, bit-wise the same on
  // every rank; undefined where no rank has one. Collective.
  void reduce(double divisor);
  void clear();  // gradients become undefined
  void scale(double factor);
  double norm() const;  // of all gradients
  std::size_t sent_bytes() const { return sent_bytes_; }

 private:
  void gather(std::size_t parameter, const torch::Tensor& own, const std::vector<std::int64_t>& rows_by_rank,
              double divisor);

  Communicator& communicator_;
  const std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  ScratchBuffer gathered_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace farandole
