// Says what a model file is that is no TorchScript, from its contents. It runs no code of the file.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace farandole {

struct ModelFileKind {
  std::string name;  // "a state_dict: weights without the model"
  std::string
      remedy;  // What to do; the call that exports TorchScript follows: "save the model in Python with"
};

// Recognizes what torch.save writes (state_dicts, pickled modules, tensors;
// also in the formats before PyTorch 1.6), safetensors, ONNX and HDF5. Returns nullopt for TorchScript
// and anything else.
std::optional<ModelFileKind> kind_of_model_file(const std::filesystem::path& file);

// Whether the file is an archive of torch.export (.pt2), by its contents, also if its end is missing.
bool is_exported_archive(const std::filesystem::path& file);

// `what` is to be exported: a model or a function, for the message.
// Throws: UserError if kind_of_model_file() recognizes the file, and what to do.
void refuse_other_models(const std::filesystem::path& file, const char* what);

}  // namespace farandole
