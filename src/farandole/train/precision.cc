#include "farandole/train/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "farandole/base/error.h"

namespace farandole {

Precision parse_precision(std::string_view text) {
  if (text == "float32") return Precision::float32;
  if (text == "tf32") return Precision::tf32;
  if (text == "bfloat16") return Precision::bfloat16;
  if (text == "float16") return Precision::float16;
  throw UserError(
      fmt::format("precision '{}' is unknown; it is one of float32, tf32, bfloat16, float16", text));
}

void round_products(Precision precision) {
  at::globalContext().setAllowTF32CuBLAS(precision == Precision::tf32);
  at::globalContext().setAllowTF32CuDNN(precision == Precision::tf32);
}

Autocast::Autocast(Precision precision, torch::Device device)
    : on_(precision == Precision::bfloat16 || precision == Precision::float16), device_(device.type()) {
  if (!on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  earlier_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(device_,
                                   precision == Precision::bfloat16 ? torch::kBFloat16 : torch::kFloat16);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, earlier_type_);
  // The cache has parameters in lower precision, which the next step changes.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace farandole
