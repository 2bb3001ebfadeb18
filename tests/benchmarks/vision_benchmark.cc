// Steps of ResNet-50 and VGG-16 on random images with their gradients reduced: the models of the scaling
// figures in the Horovod paper (Sergeev and Del Balso 2018, https://arxiv.org/abs/1802.05799), with the
// layers and the names of torchvision's models.
//
//   farandole run -n 2 -- build/bin/vision_benchmark resnet50|vgg16 STEPS
#include <fmt/format.h>
#include <memory>
#include <string>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>
#include <torch/optim.h>
#include <torch/utils.h>
#include <utility>
#include <vector>

#include "train/torch_program.h"

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/bench/measurement.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/linear.h"
#include "farandole/train/session.h"
#include "farandole/trainer/models/model.h"

namespace farandole {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Sequential;

class VisionModel : public Model {
 public:
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& y) override {
    return torch::cross_entropy_loss(output, y);
  }

 protected:
  void initialize_convolutions() {
    for (auto& module : modules(/*include_self=*/false))
      if (auto* convolution = module->as<Conv2d>())
        torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  }
};

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// He et al. 2016, https://arxiv.org/abs/1512.03385, with the stride in the 3 x 3 convolution.
class Bottleneck : public torch::nn::Module {
 public:
  static constexpr std::int64_t expansion = 4;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride) {
    const auto out = width * expansion;
    conv1 = register_module("conv1", convolution(in, width, 1));
    bn1 = register_module("bn1", BatchNorm2d(width));
    conv2 = register_module("conv2", convolution(width, width, 3, stride));
    bn2 = register_module("bn2", BatchNorm2d(width));
    conv3 = register_module("conv3", convolution(width, out, 1));
    bn3 = register_module("bn3", BatchNorm2d(out));
    if (stride != 1 || in != out)
      downsample =
          register_module("downsample", Sequential(convolution(in, out, 1, stride), BatchNorm2d(out)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(bn1(conv1(x)));
    y = torch::relu(bn2(conv2(y)));
    y = bn3(conv3(y));
    return torch::relu(y + (downsample.is_empty() ? x : downsample->forward(x)));
  }

 private:
  Conv2d conv1 = nullptr, conv2 = nullptr, conv3 = nullptr;
  BatchNorm2d bn1 = nullptr, bn2 = nullptr, bn3 = nullptr;
  Sequential downsample = nullptr;
};

class ResNet50 final : public VisionModel {
 public:
  explicit ResNet50(std::int64_t classes) {
    conv1 = register_module("conv1", convolution(3, 64, 7, 2));
    bn1 = register_module("bn1", BatchNorm2d(64));
    constexpr std::int64_t blocks[] = {3, 4, 6, 3};
    std::int64_t in = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t width = std::int64_t{64} << stage;
      Sequential layer;
      for (std::int64_t block = 0; block < blocks[stage]; ++block) {
        layer->push_back(Bottleneck(in, width, stage > 0 && block == 0 ? 2 : 1));
        in = width * Bottleneck::expansion;
      }
      layers.push_back(register_module("layer" + std::to_string(stage + 1), layer));
    }
    fc = register_module("fc", Linear(in, classes));
    initialize_convolutions();
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(bn1(conv1(x))), 3, 2, 1);
    for (auto& layer : layers) x = layer->forward(x);
    return fc(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
  }

 private:
  Conv2d conv1 = nullptr;
  BatchNorm2d bn1 = nullptr;
  std::vector<Sequential> layers;
  Linear fc = nullptr;
};

// Simonyan and Zisserman 2015, https://arxiv.org/abs/1409.1556, configuration D.
class Vgg16 final : public VisionModel {
 public:
  explicit Vgg16(std::int64_t classes) {
    features = register_module("features", Sequential());
    std::int64_t in = 3;
    for (const auto& [width, count] :
         {std::pair(64, 2), std::pair(128, 2), std::pair(256, 3), std::pair(512, 3), std::pair(512, 3)}) {
      for (int i = 0; i < count; ++i) {
        features->push_back(Conv2d(Conv2dOptions(in, width, 3).padding(1)));
        features->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
        in = width;
      }
      features->push_back(torch::nn::MaxPool2d(2));
    }
    classifier =
        register_module("classifier", Sequential(Linear(512 * 7 * 7, 4096), torch::nn::ReLU(),
                                                 torch::nn::Dropout(), Linear(4096, 4096), torch::nn::ReLU(),
                                                 torch::nn::Dropout(), Linear(4096, classes)));
    initialize_convolutions();
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::adaptive_avg_pool2d(features->forward(x), {7, 7});
    return classifier->forward(torch::flatten(x, 1));
  }

 private:
  Sequential features = nullptr, classifier = nullptr;
};

std::shared_ptr<Model> make_vision_model(const std::string& name, std::int64_t classes) {
  if (name == "resnet50") return std::make_shared<ResNet50>(classes);
  if (name == "vgg16") return std::make_shared<Vgg16>(classes);
  throw UserError("unknown model '" + name + "'; use resnet50 or vgg16");
}

int measure_steps(Session& session, const std::string& name, int steps) {
  torch::manual_seed(1);
  const auto model = make_vision_model(name, 1000);
  torch::optim::SGD inner(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  DistributedOptimizer optimizer(session, inner, model->named_parameters(), {});
  const auto images = torch::randn({4, 3, 224, 224}), labels = torch::randint(1000, {4}, torch::kInt64);
  Sample sample;
  for (int step = 0; step <= steps; ++step) {
    const auto start = now_ns();
    optimizer.zero_grad();
    model->loss(model->forward(images), labels).backward();
    optimizer.step();
    if (step > 0)
      sample.us.push_back(static_cast<double>(now_ns() - start) * 1e-3);  // the first one allocates
  }
  if (session.rank() == 0)
    fmt::print("{} on {} ranks: {} ms per step (quartiles), {:.1f} MB of gradients\n", name, session.size(),
               milliseconds_with_spread(sample), static_cast<double>(optimizer.gradient_bytes()) * 1e-6);
  return 0;
}

}  // namespace
}  // namespace farandole

int vision_benchmark(int argc, char** argv) {
  using namespace farandole;
  return run_session("vision_benchmark", argc, argv, [&](Session& session) {
    if (argc != 3 || std::atoi(argv[2]) < 1) throw UserError("usage: vision_benchmark resnet50|vgg16 STEPS");
    return measure_steps(session, argv[1], std::atoi(argv[2]));
  });
}
