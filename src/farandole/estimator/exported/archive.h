// A .pt2 archive: the programs that torch.export wrote, and their tensors. It holds no code, and the pickles
// in it (example inputs, constants of other classes) are not read.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/text/json.h"

namespace farandole {

// The tensors of a program under their names in the state dict. Those with the same storage share memory.
struct ExportedTensors {
  struct Item {
    std::string name;
    at::Tensor value;
    bool is_parameter = false;
  };
  std::vector<Item> items;  // Sorted by name.
  std::string pickled;      // The first name whose value is a pickle, which is left out.

  const Item* find(const std::string& name) const;
};

class ExportedArchive {
 public:
  // Throws: UserError if it is of another version or of a big-endian machine; std::runtime_error,
  // Json::exception or c10::Error if it is damaged.
  explicit ExportedArchive(const std::filesystem::path& file);

  const std::vector<std::string>& programs() const { return programs_; }
  // These throw in the same way.
  std::string document(const std::string& program) { return record("models/" + program + ".json"); }
  std::string example_inputs(const std::string& program) {
    return record("data/sample_inputs/" + program + ".pt");
  }
  ExportedTensors weights(const std::string& program, at::Device device) {
    return tensors("data/weights/", program + "_weights_config.json", device);
  }
  ExportedTensors constants(const std::string& program, at::Device device) {
    return tensors("data/constants/", program + "_constants_config.json", device);
  }

 private:
  std::string record(const std::string& name);
  ExportedTensors tensors(const std::string& folder, const std::string& config, at::Device device);
  std::pair<at::DataPtr, std::size_t> bytes_of_record(const std::string& name);

  std::uint64_t file_bytes_;
  caffe2::serialize::PyTorchStreamReader reader_;
  std::vector<std::string> programs_;
};

// Writes an archive that torch.export.load and ExportedArchive read.
class ExportedArchiveWriter {
 public:
  explicit ExportedArchiveWriter(const std::filesystem::path& file);
  // The programs may share tensors, which are then written once.
  void add(const std::string& program, const std::string& document, const std::string& example_inputs,
           const ExportedTensors& weights, const ExportedTensors& constants);
  // Throws: Error if the file cannot be written.
  void close();

 private:
  void add_tensors(const std::string& folder, const std::string& prefix, const std::string& config,
                   const ExportedTensors& tensors);
  void write(const std::string& name, const void* data, std::size_t bytes);
  void write(const std::string& name, const std::string& text) { write(name, text.data(), text.size()); }

  std::string file_;
  // Errors show at the end, because the destructor of LibTorch's writer must not meet them.
  std::ofstream out_;
  caffe2::serialize::PyTorchStreamWriter writer_;
  // The record of each storage, or of a tensor that is written alone, in a folder.
  std::map<std::pair<std::string, const void*>, std::string> records_;
};

}  // namespace farandole
