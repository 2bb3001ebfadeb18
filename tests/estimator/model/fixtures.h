// What the tests of the estimator's models share: a table, and messages.
#pragma once

#include <gtest/gtest.h>
#include <span>
#include <string>
#include <torch/script.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/tables/memory_table.h"

namespace farandole {

// Returns the message of the `Thrown` that the call throws. It must be one line.
template <class Thrown, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Thrown& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

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
