// Counts the floating-point operations of a model while LibTorch runs it: matrix products, convolutions,
// attention and recurrent layers, forward and backward. A multiplication and an addition count as two.
// Elementwise work is left out, as everywhere where MFU is told.
// Thread safety: call from the training thread only.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>
#include <map>
#include <memory>

namespace farandole {

class FlopCounter {
 public:
  // From now on, operators that this thread calls are counted, and those of the backward passes that it
  // starts, on any thread. Only one counter of a process counts at a time; another one stays at 0.
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  // What the model needs. Forward work that a backward pass repeats, to save memory, is left out. Attention
  // counts all pairs of positions, also if it is causal, and its backward pass twice the forward one.
  double flops() const;
  // The type of the factors of most operations; float32 if there were none.
  c10::ScalarType type() const;

  struct Counts;  // flop_counter.cc

 private:
  std::unique_ptr<Counts> counts_;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
};

}  // namespace farandole
