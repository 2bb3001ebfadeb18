#include "farandole/estimator/exported/bound_program.h"

#include <ATen/ops/complex.h>
#include <ATen/ops/view_as_complex.h>
#include <algorithm>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

namespace farandole {
namespace {

std::vector<std::string> names_of(const std::vector<const ExportedInput*>& inputs) {
  std::vector<std::string> names;
  for (const auto* const input : inputs) names.push_back(input->name);
  return names;
}

}  // namespace

BoundProgram::BoundProgram(ExportedProgram program, at::Device device, const TensorOf& tensor_of)
    : program_(std::move(program)),
      guards_(program_.guards, names_of(program_.user_inputs())),
      context_{device, {}},
      graph_(program_.graph, context_) {
  using Kind = ExportedInput::Kind;
  for (const auto& input : program_.inputs)
    own_.push_back(input.kind == Kind::user || input.kind == Kind::none ? at::Tensor() : tensor_of(input));
  for (const auto& name : program_.buffers_of_outputs) {
    auto& buffer = changed_.emplace_back();
    for (std::size_t i = 0; i < own_.size() && !name.empty(); ++i)
      if (program_.inputs[i].kind == Kind::buffer && program_.inputs[i].target == name) buffer = own(i);
    if (!name.empty() && !buffer.defined())
      throw std::runtime_error(fmt::format("the program changes {}, which is no buffer of it", name));
  }
  program_.graph = {};  // Its operations are what is needed from now on.
}

at::Tensor BoundProgram::own(std::size_t input) const {
  const auto& tensor = own_[input];
  if (tensor.is_complex() || !c10::isComplexType(program_.inputs[input].meta->dtype)) return tensor;
  // An optimizer may have moved it to a place where no complex number can begin.
  return tensor.storage_offset() % 2 == 0 ? at::view_as_complex(tensor)
                                          : at::complex(tensor.select(-1, 0), tensor.select(-1, 1));
}

std::vector<at::Tensor> BoundProgram::run(const std::vector<at::Tensor>& inputs) const {
  c10::Stack stack;
  stack.reserve(own_.size());
  auto next = inputs.begin();
  for (std::size_t i = 0; i < own_.size(); ++i) {
    if (program_.inputs[i].kind == ExportedInput::Kind::user)
      stack.emplace_back(*next++);
    else
      own_[i].defined() ? stack.emplace_back(own(i)) : stack.emplace_back();
  }
  graph_.run(stack);
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (stack[i].isNone()) continue;
    if (changed_[i].defined()) {
      const c10::AutoGradMode no_grad(false);
      changed_[i].copy_(stack[i].toTensor());
    } else {
      outputs.push_back(stack[i].toTensor());
    }
  }
  return outputs;
}

}  // namespace farandole
