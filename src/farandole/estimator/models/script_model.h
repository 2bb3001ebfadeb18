// A model in TorchScript, as the estimator trains it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <torch/script.h>
#include <vector>

#include "farandole/estimator/models/model.h"

namespace farandole {

// Throws: UserError that says what the file is, if it is a model of another kind; CorruptInput if it cannot
// be loaded as TorchScript.
LabelFunction load_script_function(const std::filesystem::path& file, torch::Device device);

class ScriptModel final : public ModelProgram {
 public:
  static constexpr const char* file_name = "model.pt";

  // Throws: UserError if the file does not exist, is a model of another kind, or always trains; CorruptInput
  // if it cannot be loaded as TorchScript.
  explicit ScriptModel(const std::filesystem::path& file, torch::Device device = torch::kCPU);
  void train(bool on) override { script_.train(on); }
  const torch::jit::Module& script() const { return script_; }
  const char* published_name() const override { return file_name; }

 private:
  std::vector<torch::Tensor> run(const std::vector<torch::Tensor>& inputs) override;
  void try_training(const std::vector<torch::Tensor>& inputs) override;
  void write(const std::string& file) override;

  torch::jit::Module script_;
};

}  // namespace farandole
