// Samples that can be fetched by index. Fetching is const and may be done from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <torch/torch.h>
#include <vector>

namespace farandole {

// Images: x float32 [n, 1, 28, 28] normalized, y int64 [n]. Text: x int64 [n, context], y int64 [n, context]
// (next byte).
struct Batch {
  torch::Tensor x;
  torch::Tensor y;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;                               // samples
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;  // indices < size()
};

// What a model must know of its data.
struct DataShape {
  std::vector<std::int64_t> input;  // of one sample, without the batch dimension
  std::int64_t classes = 0;         // labels are 0 … classes - 1; 256 for text
  bool text = false;
};

struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  DataShape shape;
  std::string source;  // for people: what was read
};

struct DataOptions {
  std::string path;           // file or folder; "synthetic"
  std::int64_t context = 64;  // text: bytes a sample
  double held_out = 0.1;      // fraction at the end, where the source has no test set of its own
  std::int64_t synthetic_samples = 2048;
  std::vector<std::int64_t> synthetic_input = {1, 28, 28};
  std::int64_t synthetic_classes = 10;
  bool as_text = false;  // what the model wants: bytes of files, or samples with labels
};

// Throws UserError for what is missing or does not fit, CorruptInput for damaged files; both name file and
// offset.
DataSplit open_data(const DataOptions& options);

}  // namespace farandole
