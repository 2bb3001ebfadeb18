#include "farandole/trainer/data/labelled_samples.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <xxhash.h>

#include "farandole/base/error.h"

namespace farandole {

ByteScale plain_bytes() {
  ByteScale scale;
  for (std::size_t i = 0; i < scale.size(); ++i) scale[i] = static_cast<float>(i);
  return scale;
}

ByteScale mnist_scale() {
  ByteScale scale;
  for (std::size_t i = 0; i < scale.size(); ++i)
    scale[i] = (static_cast<float>(i) / 255.0F - 0.1307F) / 0.3081F;
  return scale;
}

LabelledSamples::LabelledSamples(torch::Tensor x, torch::Tensor y, const ByteScale& scale)
    : x_(std::move(x)), y_(std::move(y)), scale_(scale) {
  TORCH_CHECK(x_.is_contiguous() && x_.size(0) == y_.numel(), "samples and labels do not fit");
}

Batch LabelledSamples::get(std::span<const std::int64_t> indices) const {
  const auto index = torch::from_blob(const_cast<std::int64_t*>(indices.data()),
                                      {static_cast<std::int64_t>(indices.size())}, torch::kInt64);
  const auto y = y_.index_select(0, index);  // This call also checks the indices.
  return {x_.scalar_type() == torch::kUInt8 ? unpack(indices) : x_.index_select(0, index), y};
}

torch::Tensor LabelledSamples::unpack(std::span<const std::int64_t> indices) const {
  auto shape = x_.sizes().vec();
  shape[0] = static_cast<std::int64_t>(indices.size());
  const auto row = static_cast<std::size_t>(x_.numel() / x_.size(0));
  auto batch = torch::empty(shape, torch::kFloat32);
  auto* to = batch.data_ptr<float>();
  for (const auto index : indices) {
    const auto* from = x_.const_data_ptr<std::uint8_t>() + static_cast<std::size_t>(index) * row;
    to = std::transform(from, from + row, to, [this](std::uint8_t byte) { return scale_[byte]; });
  }
  return batch;
}

std::int64_t first_part(std::int64_t n, double fraction, const std::string& source) {
  if (!(fraction > 0 && fraction < 1)) {
    throw UserError(fmt::format("--validation {}: give a fraction between 0 and 1", fraction));
  }
  if (n < 2)
    throw UserError(
        fmt::format("{}: {} samples are too few; training and evaluation need at least one each", source, n));
  return std::clamp<std::int64_t>(n - static_cast<std::int64_t>(static_cast<double>(n) * fraction), 1, n - 1);
}

DataSplit split_samples(LabelledTensors t, const ByteScale& scale, double held_out,
                        const std::string& source) {
  DataSplit split;
  split.shape = {.input = t.x.sizes().slice(1).vec(), .classes = t.classes, .text = false};
  split.source = source;
  for (const auto& tensor : {t.x, t.y, t.x_test, t.y_test})
    if (tensor.defined()) split.hash = XXH3_64bits_withSeed(tensor.data_ptr(), tensor.nbytes(), split.hash);
  if (!t.x_test.defined()) {
    const auto cut = first_part(t.x.size(0), held_out, source);
    t.x_test = t.x.slice(0, cut);
    t.y_test = t.y.slice(0, cut);
    t.x = t.x.slice(0, 0, cut);
    t.y = t.y.slice(0, 0, cut);
  }
  split.train = std::make_unique<LabelledSamples>(t.x, t.y, scale);
  split.held_out = std::make_unique<LabelledSamples>(t.x_test, t.y_test, scale);
  return split;
}

}  // namespace farandole
