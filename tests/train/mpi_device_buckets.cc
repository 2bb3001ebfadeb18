// The optimizer with buckets in memory of a device: the test doubles of CUDA and NCCL, whose memory CPU tensors can use. The
// results must be those of buckets in memory of the host, bit by bit.
#include <cstdlib>
#include <gmock/gmock.h>
#include <limits>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/internals.h"

namespace farandole {
namespace {

using torch::Tensor;

// While it exists, new optimizers of the session have buckets on the double.
class WithDevice {
 public:
  WithDevice() {
    ::setenv("FARANDOLE_CUDA_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
    ::setenv("FARANDOLE_NCCL_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
    std::string why_not;
    const auto runtime = GpuRuntime::load(why_not);
    if (runtime == nullptr) throw Error(why_not);
    stream_ = std::make_unique<GpuStream>(runtime);
    session->internals().gpu = GpuOfRank{runtime, session->rank(), [this] { return stream_->handle(); }};
  }
  ~WithDevice() { session->internals().gpu.reset(); }

 private:
  std::unique_ptr<GpuStream> stream_;
};

// One layer computes gradients in the buckets, the other one's are copied there. In some steps, the side is not used on
// some ranks, or on none.
struct SidedNet : torch::nn::Module {
  SidedNet() {
    torch::manual_seed(9);
    ours = register_module("ours", Linear(7, 30));
    theirs = register_module("theirs", torch::nn::Linear(30, 5));
    side = register_module("side", torch::nn::Linear(7, 5));
  }
  Tensor loss(int step) {
    torch::manual_seed(100 * session->rank() + step);
    const auto x = torch::randn({6, 7});
    auto y = theirs(torch::tanh(ours(x)));
    if (step % 3 != 2 && (step % 3 == 1 || session->rank() == 0)) y = y + side(x);
    return y.square().mean();
  }
  Linear ours{nullptr};
  torch::nn::Linear theirs{nullptr}, side{nullptr};
};

DistributedOptimizerOptions small_buckets() {
  DistributedOptimizerOptions options;
  options.buckets = {400, 200};
  return options;
}

void expect_equal(const torch::nn::Module& a, const torch::nn::Module& b) {
  for (const auto& item : a.named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), b.named_parameters()[item.key()])) << item.key();
}

class DeviceBuckets : public testing::TestWithParam<std::optional<double>> {};

INSTANTIATE_TEST_SUITE_P(ClipNorm, DeviceBuckets,
                         testing::Values(std::optional<double>(), std::optional<double>(0.1)));

TEST_P(DeviceBuckets, TrainTheSameParameters) {
  SidedNet there, here;
  torch::optim::AdamW a(there.parameters(), 0.01), b(here.parameters(), 0.01);
  auto options = small_buckets();
  options.clip_norm = GetParam();
  DistributedOptimizer reference(*session, b, here.named_parameters(), options);
  const WithDevice device;
  DistributedOptimizer optimizer(*session, a, there.named_parameters(), options);
  for (int step = 0; step < 9; ++step) {
    for (auto* const each : {&optimizer, &reference}) {
      each->zero_grad();
      (each == &optimizer ? there : here).loss(step).backward();
      if (step == 4) each->synchronize();
      each->step();
    }
    EXPECT_EQ(there.side->weight.grad().defined(), step % 3 != 2) << step;
    if (GetParam()) {
      EXPECT_EQ(optimizer.gradient_norm(), reference.gradient_norm());
    }
  }
  expect_equal(there, here);
  EXPECT_EQ(optimizer.sent_bytes(), reference.sent_bytes());
  EXPECT_EQ(optimizer.packed_bytes(), reference.packed_bytes());
}

TEST(DeviceBuckets, AGradientThatIsNotFiniteLeavesTheStepOut) {
  SidedNet net, before;
  bool bad = false;
  net.theirs->bias.register_hook([&](const Tensor& gradient) {
    return bad && session->rank() == session->size() - 1 ? gradient * std::numeric_limits<double>::quiet_NaN()
                                                         : gradient;
  });
  torch::optim::SGD sgd(net.parameters(), 0.1);
  auto options = small_buckets();
  options.on_nonfinite = OnNonFinite::skip;
  const WithDevice device;
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
  const auto step = [&](bool is_bad) {
    bad = is_bad;
    optimizer.zero_grad();
    net.loss(1).backward();
    optimizer.step();
  };
  step(true);
  ASSERT_TRUE(optimizer.skipped());
  EXPECT_EQ(optimizer.skipped()->what(),
            std::string("the gradient of theirs.bias has a NaN or an infinity after its reduction"));
  expect_equal(net, before);
  step(false);
  EXPECT_FALSE(optimizer.skipped());
  EXPECT_FALSE(torch::equal(net.theirs->bias, before.theirs->bias));
}

TEST(DeviceBuckets, StayOnTheDeviceInAGroup) {
  const auto group = session->new_group({session->size() - 1});
  const WithDevice device;
  if (group == nullptr) return;
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  auto options = small_buckets();
  options.group = group.get();
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net.loss(step).backward();
    optimizer.step();
  }
}

TEST(DeviceBuckets, RefuseWhatOnlyCpusHave) {
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  const WithDevice device;
  auto options = small_buckets();
  options.compression = parse_compression("float16");
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
  options.compression = {};
  options.synchronization = parse_synchronization("parameters:2");
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
}

}  // namespace
}  // namespace farandole
