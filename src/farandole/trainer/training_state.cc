#include "farandole/trainer/training_state.h"

#include <cstring>
#include <fmt/format.h>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/train/optimizer/optimizer_state.h"
#include "farandole/train/optimizer/tensor_bytes.h"

namespace farandole {
namespace {

Array to_array(const std::string& path, const torch::Tensor& tensor) {
  const auto data = tensor.detach().cpu().contiguous();
  Array array{path, dtype_of(data), data.sizes().vec(), {}};
  const auto* first = static_cast<const std::byte*>(data.data_ptr());
  array.bytes.assign(first, first + bytes_of(data));
  return array;
}

torch::Tensor to_tensor(const Array& array) {
  auto tensor = torch::empty(array.shape, scalar_type_of(array.dtype));
  std::memcpy(tensor.data_ptr(), array.bytes.data(), array.bytes.size());
  return tensor;
}

NamedTensors model_tensors(torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers())
    if (item.value().defined()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

// Returns the name in the model of each parameter of the optimizer.
std::vector<std::string> parameter_names(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  const auto named = model.named_parameters();
  std::vector<std::string> names;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      std::string name = fmt::format("parameter-{}", names.size());
      for (const auto& item : named)
        if (item.value().is_same(parameter)) name = item.key();
      names.push_back(name);
    }
  }
  return names;
}

std::string rng_path(int rank) {
  return fmt::format("/rng/rank-{:04}", rank);
}

void copy_model(const Snapshot& snapshot, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  std::size_t used = 0;
  for (auto& [name, tensor] : model_tensors(model)) {
    const Array* array = snapshot.find("/model/" + name);
    if (array == nullptr) throw UserError("the checkpoint belongs to another model: it has no " + name);
    if (array->shape != tensor.sizes().vec())
      throw UserError(
          fmt::format("the checkpoint belongs to another model: {} has {} elements there and {} here", name,
                      array->count(), tensor.numel()));
    tensor.copy_(to_tensor(*array));
    ++used;
  }
  std::size_t there = 0;
  for (const auto& array : snapshot.arrays) there += array.path.starts_with("/model/") ? 1 : 0;
  if (there != used)
    throw UserError(fmt::format(
        "the checkpoint belongs to another model: it has {} tensors, and this model has {}", there, used));
}

void copy_optimizer(const Snapshot& snapshot, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  const std::string prefix = "/optimizer/state/";
  NamedTensors state;
  for (const auto& array : snapshot.arrays)
    if (array.path.starts_with(prefix))
      state.emplace_back(array.path.substr(prefix.size()), to_tensor(array));
  import_optimizer_state(optimizer, parameter_names(model, optimizer), state);
}

std::int64_t integer(const Snapshot& snapshot, const std::string& path) {
  const Array* array = snapshot.find(path);
  if (array == nullptr || array->bytes.size() != sizeof(std::int64_t))
    throw CorruptInput("the checkpoint has no " + path + "; resume from another one");
  std::int64_t value = 0;
  std::memcpy(&value, array->bytes.data(), sizeof value);
  return value;
}

}  // namespace

Snapshot capture(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Position& position) {
  const auto rng =
      session.all_gather(at::globalContext().defaultGenerator(torch::kCPU).get_state().unsqueeze(0));
  Snapshot snapshot;
  if (session.rank() != 0) return snapshot;
  snapshot.step = position.step;
  snapshot.epoch = position.epoch;
  snapshot.world_size = session.size();
  for (const auto& [name, tensor] : model_tensors(model))
    snapshot.arrays.push_back(to_array("/model/" + name, tensor));
  for (const auto& [name, tensor] : export_optimizer_state(optimizer, parameter_names(model, optimizer)))
    snapshot.arrays.push_back(to_array("/optimizer/state/" + name, tensor));
  snapshot.arrays.push_back(to_array("/sampler/epoch", torch::tensor(position.epoch, torch::kInt64)));
  snapshot.arrays.push_back(to_array("/sampler/batches", torch::tensor(position.batches, torch::kInt64)));
  for (int r = 0; r < session.size(); ++r) snapshot.arrays.push_back(to_array(rng_path(r), rng[r]));
  return snapshot;
}

Position restore(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                 const Snapshot* snapshot) {
  auto generator = at::globalContext().defaultGenerator(torch::kCPU);
  const auto own_rng = generator.get_state();
  torch::Tensor numbers = torch::zeros(4, torch::kInt64);  // step, epoch, batches, ranks with a generator
  torch::Tensor rng;
  session.together([&] {
    if (snapshot == nullptr) return;
    copy_model(*snapshot, model);
    copy_optimizer(*snapshot, model, optimizer);
    std::vector<torch::Tensor> states;
    for (int r = 0; r < session.size(); ++r)
      if (const Array* array = snapshot->find(rng_path(r))) states.push_back(to_tensor(*array));
    for (const auto& state : states)
      if (state.sizes() != own_rng.sizes())
        throw UserError(
            "the random generators of the checkpoint come from another LibTorch; use the version that "
            "wrote it");
    numbers[0] = snapshot->step;
    numbers[1] = snapshot->epoch;
    numbers[2] = integer(*snapshot, "/sampler/batches");
    numbers[3] = static_cast<std::int64_t>(states.size());
    if (!states.empty()) rng = torch::stack(states);
  });
  session.broadcast(model);
  session.broadcast(optimizer);
  session.broadcast_(numbers);
  const auto saved = numbers[3].item<std::int64_t>();
  if (saved > 0) {
    if (!rng.defined()) rng = torch::empty({saved, own_rng.size(0)}, own_rng.options());
    session.broadcast_(rng);
    // The copy is needed because LibTorch 2.11 reads past the end of a state that does not begin its storage.
    if (session.rank() < saved) generator.set_state(rng[session.rank()].clone());
  }
  return {numbers[0].item<std::int64_t>(), numbers[1].item<std::int64_t>(), numbers[2].item<std::int64_t>()};
}

}  // namespace farandole
