// What each tensor's compressed gradients have left out so far, on this rank (error feedback). Used by one
// thread at a time.
#pragma once

#include <span>
#include <vector>

#include "farandole/fusion/compressor.h"

namespace farandole {

// Kept a tensor and not a bucket, so that a new plan of buckets takes nothing away.
class Residuals {
 public:
  explicit Residuals(const std::vector<TensorSpec>& tensors);

  // Of the tensor's own type and length; zeros at first.
  template <class T>
  std::span<T> of(std::size_t tensor) {
    auto& bytes = ready(tensor);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  void save(std::vector<CompressorState>& to) const;  // as "residual/NAME", those that were ever used
  void restore(std::span<const CompressorState> from);

 private:
  std::vector<std::byte>& ready(std::size_t tensor);

  const std::vector<TensorSpec> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

// The part of that name, if any; throws CorruptInput where its type or its shape is another.
const CompressorState* find_state(std::span<const CompressorState> states, const std::string& name,
                                  DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace farandole
