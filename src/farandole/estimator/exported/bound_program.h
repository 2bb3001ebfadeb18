// A program with its tensors, ready to run.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "farandole/estimator/exported/execution.h"
#include "farandole/estimator/exported/guards.h"
#include "farandole/estimator/exported/program.h"

namespace farandole {

class BoundProgram {
 public:
  // Returns the tensor of a parameter, a buffer or a constant, or one of real numbers with an inner dimension
  // of 2 if the program's is complex. Throws: std::runtime_error if there is none.
  using TensorOf = std::function<at::Tensor(const ExportedInput& input)>;

  // Throws: std::runtime_error if the graph is wrong.
  BoundProgram(ExportedProgram program, at::Device device, const TensorOf& tensor_of);

  const ExportedProgram& program() const { return program_; }
  // Operators that this library cannot run. If there are any, the program cannot be run.
  const std::set<std::string>& missing() const { return context_.missing; }
  const SizeGuards& guards() const { return guards_; }
  // The inputs must be as many as the program's, and have their types. Outputs that are None are left out.
  // Throws: as the operators.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

 private:
  at::Tensor own(std::size_t input) const;

  ExportedProgram program_;
  SizeGuards guards_;
  ExportedContext context_;
  ExecutableGraph graph_;
  std::vector<at::Tensor> own_;      // For each input of the graph that is no user's.
  std::vector<at::Tensor> changed_;  // For each output: the buffer that takes it, or undefined.
};

}  // namespace farandole
