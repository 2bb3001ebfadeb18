// The benchmark's ResNet-50 and VGG-16 are torchvision's: names, shapes and numbers of parameters.
#include "farandole/bench/training/vision_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <torch/utils.h>

namespace farandole {
namespace {

std::map<std::string, std::vector<std::int64_t>> shapes_of(const Model& model) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& item : model.named_parameters()) shapes[item.key()] = item.value().sizes().vec();
  return shapes;
}

TEST(VisionModels, AreThoseOfTorchvision) {
  const auto count = [](const Model& model) {
    std::int64_t sum = 0;
    for (const auto& parameter : model.parameters()) sum += parameter.numel();
    return sum;
  };
  const auto resnet = make_vision_model("resnet50", 1000);
  EXPECT_EQ(count(*resnet), 25'557'032);
  const auto shapes = shapes_of(*resnet);
  EXPECT_EQ(shapes.size(), 161u);
  EXPECT_EQ(shapes.at("layer3.5.conv2.weight"), (std::vector<std::int64_t>{256, 256, 3, 3}));
  EXPECT_EQ(shapes.at("layer1.0.downsample.0.weight"), (std::vector<std::int64_t>{256, 64, 1, 1}));
  EXPECT_EQ(shapes.at("fc.weight"), (std::vector<std::int64_t>{1000, 2048}));
  const auto vgg = make_vision_model("vgg16", 1000);
  EXPECT_EQ(count(*vgg), 138'357'544);
  EXPECT_EQ(shapes_of(*vgg).at("features.28.weight"), (std::vector<std::int64_t>{512, 512, 3, 3}));
  EXPECT_EQ(shapes_of(*vgg).at("classifier.6.weight"), (std::vector<std::int64_t>{1000, 4096}));
}

TEST(VisionModels, ResNetTrains) {
  torch::manual_seed(1);
  const auto model = make_vision_model("resnet50", 7);
  const auto output = model->forward(torch::randn({2, 3, 64, 64}));
  EXPECT_EQ(output.sizes().vec(), (std::vector<std::int64_t>{2, 7}));
  model->loss(output, torch::tensor({1, 5})).backward();
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

}  // namespace
}  // namespace farandole
