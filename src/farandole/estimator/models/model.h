// A model file as the estimator trains it, whatever its format.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <utility>
#include <vector>

namespace farandole {

class ModelProgram {
 public:
  using TiedNames = std::vector<std::pair<std::string, std::string>>;

  virtual ~ModelProgram() = default;

  // Returns `outputs` tensors: the model returns one tensor, or a tuple or a list of them.
  // Throws: UserError if the model does not accept the inputs or returns something else.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs, std::size_t outputs);
  virtual void train(bool on) = 0;
  // Says why a forward pass in training fails on these inputs; "" if it does not. Changes nothing.
  std::string why_not_trained_on(const std::vector<torch::Tensor>& inputs);
  // Returns the parameters and buffers of the model under their names; they share memory with it. A
  // parameter with several names (tied weights) is there once, under the first.
  torch::nn::Module& module() { return *view_; }
  // Throws: UserError if there are none.
  std::vector<torch::Tensor> trained_parameters();
  const std::string& file() const { return file_; }

  // Publishes the model in its own format, and as a state dict: an HDF5 file with a data set for each name.
  // The model may be on the CPU from then on.
  // Throws: Error if a file cannot be written.
  void save(const std::filesystem::path& file);
  void save_state(const std::filesystem::path& file);
  virtual const char* published_name() const = 0;  // "model.pt"

 protected:
  explicit ModelProgram(const std::filesystem::path& file);  // Throws: UserError if the file does not exist.

  // Returns the outputs. Throws: UserError if they are no tensors; any exception of LibTorch.
  virtual std::vector<torch::Tensor> run(const std::vector<torch::Tensor>& inputs) = 0;
  // Runs a forward pass in training, whose effects on the model do not last.
  virtual void try_training(const std::vector<torch::Tensor>& inputs) = 0;
  virtual void write(const std::string& file) = 0;
  // Of what run() returns. Empty if they are unknown.
  virtual std::vector<std::string> output_names() const { return {}; }

  std::string wrong_outputs(const std::vector<torch::Tensor>& tensors, std::size_t labels) const;

  std::string file_;
  std::shared_ptr<torch::nn::Module> view_;
  TiedNames tied_;  // Further names of parameters and buffers, and the first name of each.
};

// Reads TorchScript or an archive of torch.export. `evaluation_file` is the program for evaluation, if it is
// not in `file`.
// Throws: UserError that says what the file is, if it is a model of another kind, or if it cannot be trained;
// CorruptInput if it is damaged.
std::unique_ptr<ModelProgram> load_model(const std::filesystem::path& file,
                                         const std::filesystem::path& evaluation_file, torch::Device device);
// The same for the result of a fit, which is only evaluated.
std::unique_ptr<ModelProgram> load_published_model(const std::filesystem::path& folder, torch::Device device);
std::filesystem::path published_model(const std::filesystem::path& folder);

// A loss or a metric: TorchScript or an archive of torch.export, of output and label.
using LabelFunction = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& label)>;
// Throws as load_model(). The function throws UserError if it returns no tensor, and any
// exception of LibTorch.
LabelFunction load_function(const std::filesystem::path& file, torch::Device device);

// Returns the sentence of an error of LibTorch that says what is wrong, without its stacks.
std::string brief(const std::exception& error);

}  // namespace farandole
