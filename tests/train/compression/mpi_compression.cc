#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/fusion/top_k_compressor.h"
#include "farandole/train/compression/compression_state.h"

namespace farandole {
namespace {

constexpr const char* every_compression[] = {"none",     "float16",   "bfloat16", "bfloat16:between-nodes",
                                             "topk:0.2", "powersgd:2"};

torch::nn::Sequential compressed_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(20, 40), torch::nn::Tanh(), torch::nn::Linear(40, 10));
}

// One step on this rank's data of the step; deterministic.
double train_compressed(torch::nn::Sequential& net, DistributedOptimizer& optimizer, int step) {
  torch::manual_seed(1000 * step + session->rank());
  const auto x = torch::randn({16, 20});
  optimizer.zero_grad();
  const auto loss = (net->forward(x) - x.slice(1, 0, 10)).pow(2).mean();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

torch::Tensor flat_parameters(torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : net->parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

TEST(CompressedGradients, TrainAndStayEqualOnAllRanks) {
  for (const auto* kind : every_compression) {
    SCOPED_TRACE(kind);
    auto net = compressed_net();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.5));
    DistributedOptimizerOptions options;
    options.compression = parse_compression(kind);
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
    const double first = train_compressed(net, optimizer, 0);
    double last = 0;
    for (int step = 1; step < 60; ++step) last = train_compressed(net, optimizer, step);
    EXPECT_LT(last, 0.8 * first);
    EXPECT_GT(optimizer.sent_bytes(), 0u);
    const auto own = flat_parameters(net);
    const auto all = session->all_gather(own.unsqueeze(0));
    for (int r = 0; r < session->size(); ++r) EXPECT_TRUE(torch::equal(all[r], own));
  }
}

// A snapshot from the middle is restored into another optimizer; both then compute bit-wise equal parameters.
TEST(CompressedGradients, ContinueFromASnapshotAsIfNeverStopped) {
  for (const auto* kind : every_compression) {
    SCOPED_TRACE(kind);
    DistributedOptimizerOptions options;
    options.compression = parse_compression(kind);
    auto net = compressed_net(), resumed = compressed_net();
    torch::optim::SGD sgd(net->parameters(), 0.1), resumed_sgd(resumed->parameters(), 0.1);
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
    DistributedOptimizer resumed_optimizer(*session, resumed_sgd, resumed->named_parameters(), options);
    for (int step = 0; step < 5; ++step) train_compressed(net, optimizer, step);
    SnapshotBuilder builder;
    builder.header().world_size = session->size();
    capture_compression(*session, options.compression, optimizer.compressor(), builder);
    const auto snapshot = builder.finish();
    restore_compression(*session, options.compression, resumed_optimizer.compressor(),
                        session->rank() == 0 ? &snapshot : nullptr);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : net->named_parameters())
        resumed->named_parameters()[item.key()].copy_(item.value());
    }
    for (int step = 5; step < 10; ++step) {
      train_compressed(net, optimizer, step);
      train_compressed(resumed, resumed_optimizer, step);
    }
    EXPECT_TRUE(torch::equal(flat_parameters(net), flat_parameters(resumed)));
    const bool remembers = options.compression.kind == Compression::Kind::top_k ||
                           options.compression.kind == Compression::Kind::powersgd;
    EXPECT_EQ(!snapshot.arrays.empty(), remembers && session->rank() == 0);
    for (const auto& array : snapshot.arrays)
      EXPECT_EQ(array.bytes.size(), array.count() * size_of(array.dtype));
  }
}

TEST(CompressedGradients, ForgetWhatIsOfAnotherCompression) {
  const auto topk = parse_compression("topk:0.5"), other = parse_compression("topk:0.25");
  const std::vector<TensorSpec> tensors = {{"w", {3}, DType::float32}};
  TopKCompressor compressor(tensors, topk.fraction);
  compressor.restore(std::vector<CompressorState>{
      {"residual/w", DType::float32, {3}, std::vector<std::byte>(12, std::byte{1})}});
  SnapshotBuilder builder;
  builder.header().world_size = session->size();
  capture_compression(*session, topk, compressor, builder);
  const auto snapshot = builder.finish();
  TopKCompressor same(tensors, topk.fraction), fresh(tensors, other.fraction);
  const auto* there = session->rank() == 0 ? &snapshot : nullptr;
  restore_compression(*session, topk, same, there);
  restore_compression(*session, other, fresh, there);
  ASSERT_EQ(same.state().size(), 1u);
  EXPECT_EQ(same.state()[0].bytes, compressor.state()[0].bytes);
  EXPECT_TRUE(fresh.state().empty());
}

}  // namespace
}  // namespace farandole
