#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <torch/types.h>
#include <tuple>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/data/hdf5_samples.h"
#include "farandole/trainer/data/idx_folder.h"
#include "farandole/trainer/data/labelled_samples.h"
#include "farandole/trainer/data/synthetic.h"
#include "farandole/trainer/data/text_source.h"
#include "farandole/trainer/data/text_windows.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

torch::Tensor tensor_of(const std::vector<std::uint8_t>& bytes) {
  return torch::from_blob(const_cast<std::uint8_t*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())},
                          torch::kUInt8);
}

// Returns images as bytes [n, 1, rows, columns] and labels [n].
std::pair<torch::Tensor, torch::Tensor> tensors_of(const LabelledImages& data) {
  const auto& images = data.images;
  return {tensor_of(images.pixels).view({images.count, 1, images.rows, images.columns}).clone(),
          tensor_of(data.labels).to(torch::kInt64)};
}

DataSplit open_images(const fs::path& folder, double held_out) {
  const auto files = find_idx_files(folder);
  LabelledTensors tensors{.x = {}, .y = {}, .x_test = {}, .y_test = {}, .classes = 10};
  std::tie(tensors.x, tensors.y) = tensors_of(read_idx_pair(files.train));
  std::string source = files.train.images.string();
  if (files.test) {
    std::tie(tensors.x_test, tensors.y_test) = tensors_of(read_idx_pair(*files.test));
    source += " and " + files.test->images.filename().string();
    if (tensors.x_test.sizes().slice(1) != tensors.x.sizes().slice(1)) {
      throw CorruptInput(fmt::format("{}: the size of the images (offset 8) differs from {}",
                                     files.test->images.string(), files.train.images.string()));
    }
  }
  return split_samples(std::move(tensors), mnist_scale(), held_out, source);
}

DataSplit open_text(const DataOptions& options) {
  auto text = read_text(options.path);
  const auto source =
      text.files == 1 ? fmt::format("{} ({} bytes)", options.path, text.bytes.size())
                      : fmt::format("{} ({} files, {} bytes)", options.path, text.files, text.bytes.size());
  return split_text(std::move(text.bytes), options.context, options.held_out, source);
}

}  // namespace

DataSplit open_data(const DataOptions& options) {
  if (options.path == "synthetic")
    return options.as_text ? synthetic_text(options) : synthetic_samples(options);
  const fs::path path = options.path;
  if (!fs::exists(path)) {
    throw UserError(fmt::format(
        "--data {}: there is no such file or folder; name an existing one, or use --data synthetic",
        options.path));
  }
  const bool hdf5 = is_hdf5_file(path);
  const bool images = fs::is_directory(path) && has_idx_images(path);
  if (options.as_text) {
    if (!hdf5 && !images) return open_text(options);
    throw UserError(
        fmt::format("--data {} holds {}, and the model gpt learns text: use --model mlp{}, or name a text",
                    options.path, images ? "images" : "samples with labels", images ? " or mnist" : ""));
  }
  if (hdf5) return read_hdf5_samples(path, options.held_out);
  if (images) return open_images(path, options.held_out);
  throw UserError(fmt::format(
      "--data {} holds no samples with labels (looked for {}), which the models mnist and mlp learn from: "
      "name a "
      "folder of IDX files or an HDF5 file, or use --model gpt for text",
      options.path,
      fs::is_directory(path) ? "train*-images-idx3-ubyte[.gz] in it" : "HDF5's signature at its start"));
}

}  // namespace farandole
