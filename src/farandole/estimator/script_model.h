// A model in TorchScript, as the estimator trains it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <torch/script.h>
#include <utility>
#include <vector>

namespace farandole {

// `what` is exported: a model or a function, for messages.
// Throws: UserError that says what the file is, if it is a model of another kind; CorruptInput if it cannot
// be loaded as TorchScript.
torch::jit::Module load_script(const std::string& file, torch::Device device, const char* what);

class ScriptModel {
 public:
  using TiedNames = std::vector<std::pair<std::string, std::string>>;

  // Throws: UserError if the file does not exist; as load_script().
  explicit ScriptModel(const std::filesystem::path& file, torch::Device device = torch::kCPU);

  // Returns `outputs` tensors: the model returns one tensor, or a tuple or a list of them.
  // Throws: UserError if the model does not accept the inputs or returns something else.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs, std::size_t outputs);
  void train(bool on) { script_.train(on); }
  // Says why a forward pass in training fails on these inputs; "" if it does not. Changes nothing.
  std::string why_not_trained_on(const std::vector<torch::Tensor>& inputs) const;
  // Returns the parameters and buffers of the script under their names; they share memory with it. A
  // parameter with several names (tied weights) is there once, under the first.
  torch::nn::Module& module() { return *view_; }
  // Throws: UserError if there are none.
  std::vector<torch::Tensor> trained_parameters();
  const std::string& file() const { return file_; }

  // Publishes the model, which is on the CPU from then on, as TorchScript, and as a state dict: an HDF5 file
  // with a data set for each name.
  // Throws: Error if a file cannot be written.
  void save(const std::filesystem::path& file);
  void save_state(const std::filesystem::path& file);

 private:
  std::string file_;
  torch::jit::Module script_;
  std::shared_ptr<torch::nn::Module> view_;
  TiedNames tied_;  // Further names of parameters, and the first name of each.
};

// Returns the sentence of an error of LibTorch that says what is wrong, without its stacks.
std::string brief(const std::exception& error);

}  // namespace farandole
