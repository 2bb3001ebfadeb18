// Mixed precision: the numbers with which layers compute. Parameters and their gradients stay float32.
// Thread safety: call from the training thread only.
#pragma once

#include <string_view>
#include <torch/types.h>

namespace farandole {

enum class Precision { float32, tf32, bfloat16, float16 };

// Parses "float32", "tf32", "bfloat16" or "float16".
// Throws: UserError for any other text.
Precision parse_precision(std::string_view text);

// Lets the matrix products and convolutions of GPUs round float32 to 10 binary digits with tf32, and not
// otherwise. It holds for the process. On CPUs, tf32 is float32.
void round_products(Precision precision);

// While it exists, layers compute in this precision where LibTorch's autocast thinks it is safe. Put the
// forward pass and the loss inside, and backward outside. With float16, use also
// DistributedOptimizer::scale(), because small gradients become 0 otherwise.
class Autocast {
 public:
  Autocast(Precision precision, torch::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool on_;
  const torch::DeviceType device_;
  bool was_enabled_ = false;
  torch::ScalarType earlier_type_ = torch::kFloat32;
};

}  // namespace farandole
