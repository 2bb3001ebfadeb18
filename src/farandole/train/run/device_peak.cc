#include "farandole/train/run/device_peak.h"

#include <algorithm>
#include <array>

namespace farandole {
namespace {

// Without sparsity. Where NVIDIA names only the figures with sparsity, these are half of them. float32 is
// that of the cores that do not round to TF32. float16 and bfloat16 are equal on all of these cards, with
// sums in float32.
struct Peak {
  std::string_view name;  // as CUDA has it, without "NVIDIA "
  double float32, tf32, half;
};

// From NVIDIA's data sheets of these cards; of B200 and GB200 from those of HGX B200 (eight cards) and
// GB200 NVL72 (72 cards), and of the GeForce and RTX cards from the white papers of the architectures
// Ampere GA102 and Ada.
constexpr std::array peaks{
    Peak{"A10", 31.2, 62.5, 125},
    Peak{"A30", 10.3, 82, 165},
    Peak{"A40", 37.4, 74.8, 149.7},
    Peak{"A100-PCIE-40GB", 19.5, 156, 312},
    Peak{"A100-SXM4-40GB", 19.5, 156, 312},
    Peak{"A100 80GB PCIe", 19.5, 156, 312},
    Peak{"A100-SXM4-80GB", 19.5, 156, 312},
    Peak{"RTX A6000", 38.7, 77.4, 154.8},
    Peak{"GeForce RTX 3090", 35.6, 35.6, 71.2},
    Peak{"GeForce RTX 4090", 82.6, 82.6, 165.2},
    Peak{"RTX 6000 Ada Generation", 91.1, 182.1, 364.2},
    Peak{"L4", 30.3, 60, 121},
    Peak{"L40", 90.5, 90.5, 181},
    Peak{"L40S", 91.6, 183, 362},
    Peak{"H100 PCIe", 51.2, 378, 756},
    Peak{"H100 NVL", 60, 417.5, 835.5},
    Peak{"H100 80GB HBM3", 66.9, 494.7, 989.4},
    Peak{"GH200 480GB", 66.9, 494.7, 989.4},
    Peak{"H200", 66.9, 494.7, 989.4},
    Peak{"H200 NVL", 60, 417.5, 835.5},
    Peak{"B200", 75, 1100, 2250},
    Peak{"GB200", 80, 1250, 2500},
};

}  // namespace

std::optional<double> device_peak_tflops(std::string_view name, c10::ScalarType type, bool tf32) {
  constexpr std::string_view maker = "NVIDIA ";
  if (name.starts_with(maker)) name.remove_prefix(maker.size());
  const auto* const found = std::ranges::find(peaks, name, &Peak::name);
  if (found == peaks.end()) return std::nullopt;
  switch (type) {
    case c10::ScalarType::Float:
      return tf32 ? found->tf32 : found->float32;
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return found->half;
    default:
      return std::nullopt;
  }
}

}  // namespace farandole
