#include "farandole/train/optimizer/make_compressor.h"

#include "farandole/fusion/half_compressor.h"
#include "farandole/fusion/top_k_compressor.h"
#include "farandole/train/optimizer/powersgd_compressor.h"

namespace farandole {

std::unique_ptr<Compressor> make_compressor(const Compression& compression,
                                            const std::vector<TensorSpec>& tensors) {
  switch (compression.kind) {
    case Compression::Kind::none:
      break;
    case Compression::Kind::float16:
      return std::make_unique<HalfCompressor>(DType::float16);
    case Compression::Kind::bfloat16:
      return std::make_unique<HalfCompressor>(DType::bfloat16);
    case Compression::Kind::powersgd:
      return std::make_unique<PowerSgdCompressor>(tensors, compression.rank);
    case Compression::Kind::top_k:
      return std::make_unique<TopKCompressor>(tensors, compression.fraction);
  }
  return std::make_unique<PlainCompressor>();
}

}  // namespace farandole
