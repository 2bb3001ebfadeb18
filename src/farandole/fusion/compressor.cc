#include "farandole/fusion/compressor.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/error.h"

namespace farandole {

Residuals::Residuals(const std::vector<TensorSpec>& tensors) : tensors_(tensors), bytes_(tensors.size()) {}

std::vector<std::byte>& Residuals::ready(std::size_t tensor) {
  auto& bytes = bytes_[tensor];
  if (bytes.empty()) bytes.resize(tensors_[tensor].bytes());
  return bytes;
}

void Residuals::save(std::vector<CompressorState>& to) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!bytes_[i].empty())
      to.push_back({"residual/" + tensors_[i].name, tensors_[i].dtype, tensors_[i].shape, bytes_[i]});
}

void Residuals::restore(std::span<const CompressorState> from) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto* state =
        find_state(from, "residual/" + tensors_[i].name, tensors_[i].dtype, tensors_[i].shape);
    bytes_[i] = state != nullptr ? state->bytes : std::vector<std::byte>();
  }
}

const CompressorState* find_state(std::span<const CompressorState> states, const std::string& name,
                                  DType dtype, const std::vector<std::int64_t>& shape) {
  const auto found =
      std::find_if(states.begin(), states.end(), [&](const auto& state) { return state.name == name; });
  if (found == states.end()) return nullptr;
  const TensorSpec wanted{name, shape, dtype};
  const TensorSpec given{name, found->shape, found->dtype};
  if (found->dtype != dtype || found->shape != shape || found->bytes.size() != wanted.bytes())
    throw CorruptInput(fmt::format(
        "the compressor's state {} does not match {} of this model; resume with the model that saved it",
        given.describe(), wanted.describe()));
  return &*found;
}

}  // namespace farandole
