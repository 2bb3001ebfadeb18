// Ranks whose parameters differ in one bit are found and named.
#include <cstring>
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/replica_check.h"

namespace farandole {
namespace {

using testing::HasSubstr;

torch::nn::Sequential equal_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(7, 5), torch::nn::Linear(5, 300));
}

void flip_bit(torch::Tensor parameter, std::int64_t element) {
  const torch::NoGradGuard no_grad;
  std::uint32_t bits;
  float value = parameter.view(-1)[element].item<float>();
  std::memcpy(&bits, &value, sizeof bits);
  bits ^= 1;
  std::memcpy(&value, &bits, sizeof value);
  parameter.view(-1)[element] = value;
}

TEST(ReplicaCheck, AcceptsEqualModels) {
  const auto model = equal_model();
  check_replicas(*session, *model);
  check_replicas(*session, *torch::nn::Sequential());
}

TEST(ReplicaCheck, NamesTheFirstParameterAndTheRanks) {
  if (session->size() == 1) GTEST_SKIP() << "needs several ranks";
  const int last = session->size() - 1;
  const auto model = equal_model();
  const auto parameters = model->named_parameters();
  if (session->rank() == last) {
    flip_bit(parameters["1.weight"], 1499);
    flip_bit(parameters["1.bias"], 0);
  }
  try {
    check_replicas(*session, *model);
    ADD_FAILURE() << "different models were accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 of 4 parameters, the first is 1.weight with hash "));
    EXPECT_THAT(error.what(), HasSubstr(" on rank " + std::to_string(last) + ";"));
    EXPECT_EQ(error.exit_code(), ExitCode::failure);
  }
}

}  // namespace
}  // namespace farandole
