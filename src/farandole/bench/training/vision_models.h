// ResNet-50 and VGG-16, the models of the scaling figures in the Horovod paper (Sergeev and Del Balso 2018,
// https://arxiv.org/abs/1802.05799). They have the layers and the names of torchvision's models.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "farandole/trainer/models/model.h"

namespace farandole {

// `name` is resnet50 or vgg16. Inputs are float32 [n, 3, height, width]; outputs are logits [n, classes].
std::shared_ptr<Model> make_vision_model(const std::string& name, std::int64_t classes);

}  // namespace farandole
