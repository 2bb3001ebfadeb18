// The parts of each tensor's gradients that compression has left out so far on this rank (error feedback).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "farandole/fusion/compressor.h"

namespace farandole {

// Stored per tensor instead of per bucket, so that a new bucket plan loses nothing.
class Residuals {
 public:
  explicit Residuals(const std::vector<TensorSpec>& tensors);

  // The residual of the tensor, with its type and length; initially zero.
  template <class T>
  std::span<T> of(std::size_t tensor) {
    auto& bytes = ready(tensor);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  void save(std::vector<CompressorState>& to) const;  // saved as "residual/NAME"; only those that were used
  void restore(std::span<const CompressorState> from);

 private:
  std::vector<std::byte>& ready(std::size_t tensor);

  const std::vector<TensorSpec> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

// The state with this name; nullptr if there is none.
// Throws: CorruptInput if it has another type or shape.
const CompressorState* find_state(std::span<const CompressorState> states, const std::string& name,
                                  DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace farandole
