// What the tests of the estimator's models share.
#pragma once

#include <span>
#include <string>
#include <torch/script.h>
#include <vector>

#include "error_message.h"

#include "farandole/base/error.h"
#include "farandole/tables/formats.h"

namespace farandole {

template <class Number>
std::vector<std::byte> bytes_of_numbers(const std::vector<Number>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

// A script with one method, as torch.jit.script compiles it.
inline torch::jit::Module script_of(const std::string& method) {
  torch::jit::Module module("Net");
  module.define(method);
  return module;
}

}  // namespace farandole
