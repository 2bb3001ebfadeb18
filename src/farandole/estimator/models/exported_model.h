// A model of torch.export, as the estimator trains it: a program for training and one for evaluation, with
// the same tensors.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/exported/archive.h"
#include "farandole/estimator/exported/bound_program.h"
#include "farandole/estimator/models/model.h"

namespace farandole {

// Throws: UserError if the program cannot be run; CorruptInput if the file is damaged.
LabelFunction load_exported_function(const std::filesystem::path& file, torch::Device device);

// Calls `visit` with each program of a file. Throws as ExportedModel, also for what `visit` throws.
void visit_exported_programs(const std::string& file,
                             const std::function<void(const ExportedProgram&)>& visit);

class ExportedModel final : public ModelProgram {
 public:
  static constexpr const char* file_name = "model.pt2";

  // The programs may be in one file or in two, in any order. One program is enough for a model that does the
  // same in training and evaluation.
  // Throws: UserError if a file does not exist, or if the programs cannot be trained here; CorruptInput if a
  // file is damaged.
  ExportedModel(const std::filesystem::path& file, const std::filesystem::path& evaluation_file,
                torch::Device device);

  void train(bool on) override { trains_ = on; }
  const char* published_name() const override { return file_name; }

 private:
  struct Part {
    std::string example_inputs;
    ExportedTensors constants;
    std::unique_ptr<const BoundProgram> bound;
  };
  const Part& active() const { return trains_ || !evaluation_ ? training_ : *evaluation_; }
  void add_to_module(const ExportedProgram& program);
  std::vector<torch::Tensor> run(const std::vector<torch::Tensor>& inputs) override;
  void try_training(const std::vector<torch::Tensor>& inputs) override;
  void write(const std::string& file) override;
  std::vector<std::string> output_names() const override { return active().bound->program().output_names; }

  ExportedTensors weights_;        // Of both programs.
  std::set<std::string> complex_;  // Those that are kept as pairs of real numbers.
  Part training_;
  std::optional<Part> evaluation_;
  bool trains_ = true;
};

}  // namespace farandole
