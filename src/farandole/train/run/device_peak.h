// How many floating-point operations a GPU can do in a second.
// Thread safety: any thread may call this at any time.
#pragma once

#include <c10/core/ScalarType.h>
#include <optional>
#include <string_view>

namespace farandole {

// The peak of a card for dense matrix products of this type, in 10^12 operations per second. `name` is
// CUDA's, as nvidia-smi shows it; `tf32`: float32 may be rounded to TF32. Unknown cards, parts of a card
// (MIG) and types have none.
std::optional<double> device_peak_tflops(std::string_view name, c10::ScalarType type, bool tf32);

}  // namespace farandole
