// Samples that are fetched by index.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/train/session.h"

namespace farandole {

// Images: x float32 [n, 1, 28, 28] normalized, y int64 [n].
// Text: x int64 [n, context], y int64 [n, context] (next byte).
struct Batch {
  torch::Tensor x;
  torch::Tensor y;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;  // samples
  // The same indices, which are < size(), always give the same batch: it may be fetched before its
  // turn, or twice.
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
};

// What a model must know about its data.
struct DataShape {
  std::vector<std::int64_t> input;  // Shape of one sample, without the batch dimension.
  std::int64_t classes = 0;         // Labels are 0 to classes - 1; 256 for text.
  bool text = false;
};

struct DataSplit {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
  DataShape shape;
  std::string source;      // Describes for the user what was read.
  std::uint64_t hash = 0;  // XXH3 of all samples.
};

struct DataOptions {
  std::string path;  // A table as open_table() takes it, a folder of IDX files, text, or "synthetic".
  std::vector<std::string> features = {"x"};  // Columns of the table.
  std::string label = "y";                    // A column of class numbers.
  std::int64_t context = 64;                  // Bytes per sample of text.
  double held_out = 0.1;  // Fraction at the end of the data; used if the source has no test set.
  std::int64_t synthetic_samples = 2048;
  std::vector<std::int64_t> synthetic_input = {1, 28, 28};
  std::int64_t synthetic_classes = 10;
  bool warns = true;     // Logs what is strange about a table.
  bool as_text = false;  // Whether the model needs the bytes of files (true) or samples with labels (false).
};

// Reads samples of tables and IDX files, or text, into memory. If a table has columns with _test after the
// names of features and label, these rows are held out.
// Throws: UserError if data is missing or does not fit the options; CorruptInput if a file is damaged. Both
// messages name the file and the place.
DataSplit open_data(const DataOptions& options);

// Like open_data(). If `scratch` is not empty, one rank of each node first copies the data to a folder of its
// node, so that the parallel file system is read once for each node and not once for each rank. `scratch` is
// that folder, or "auto", which copies only from a network file system and chooses the folder as
// place_recorder() does. The copy is removed as soon as all ranks of the job have read it.
// Collective: every rank of the group must call this in the same order.
// Throws: as open_data(), and UserError if the folder cannot be written or has no room.
DataSplit open_staged_data(Session& session, const DataOptions& options, const std::string& scratch);

}  // namespace farandole
