// From an option to what compresses. Usable from any thread.
#pragma once

#include <memory>
#include <vector>

#include "farandole/fusion/compression.h"
#include "farandole/fusion/compressor.h"

namespace farandole {

// `tensors` are those of the plans that it will reduce.
std::unique_ptr<Compressor> make_compressor(const Compression& compression,
                                            const std::vector<TensorSpec>& tensors);

}  // namespace farandole
