#include "farandole/train/run/training_state.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <torch/utils.h>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/tensor_bytes.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

void add(SnapshotBuilder& snapshot, const std::string& path, const torch::Tensor& tensor,
         DeviceCopies* copies = nullptr) {
  const auto to = snapshot.add(path, dtype_of(tensor), {tensor.sizes().begin(), tensor.sizes().end()});
  if (copies != nullptr && copies->takes(tensor)) return copies->add(tensor, to);
  const auto data = tensor.detach().cpu().contiguous();
  if (!to.empty()) std::memcpy(to.data(), data.const_data_ptr(), to.size());
}

// Refers to the array's bytes.
torch::Tensor view_of(const Array& array) {
  if (array.bytes.empty()) return torch::empty(array.shape, scalar_type_of(array.dtype));
  return torch::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape,
                          scalar_type_of(array.dtype));
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

void move_optimizer(Snapshot& snapshot, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  NamedTensors state;
  for (auto& array : snapshot.arrays)
    if (array.path.starts_with(schema::optimizer))
      state.emplace_back(array.path.substr(schema::optimizer.size()),
                         tensor_of(std::move(array.bytes), array.shape, scalar_type_of(array.dtype)));
  import_optimizer_state(optimizer, parameter_names(model, optimizer), state);
}

std::optional<std::int64_t> integer(const Snapshot& snapshot, const std::string& path) {
  const Array* array = snapshot.find(path);
  if (array == nullptr || array->bytes.size() != sizeof(std::int64_t)) return std::nullopt;
  std::int64_t value = 0;
  std::memcpy(&value, array->bytes.data(), sizeof value);
  return value;
}

// Bytes of the state of a GPU's random generator: its seed and its position.
constexpr std::int64_t gpu_generator_bytes = 16;

// The state of the CPU's random generator, followed by that of the GPU's if there is one.
torch::Tensor random_state(torch::Device device) {
  const auto cpu = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  return device.is_cpu() ? cpu : torch::cat({cpu, at::globalContext().defaultGenerator(device).get_state()});
}

// A run can continue on another device; then the generators that the checkpoint lacks stay as they are.
void set_random_state(const torch::Tensor& state, torch::Device device) {
  auto cpu = at::globalContext().defaultGenerator(torch::kCPU);
  const auto bytes = cpu.get_state().size(0);
  // The copies are needed because LibTorch 2.11 reads past the end of a state that does not
  // begin its storage.
  cpu.set_state(state.narrow(0, 0, bytes).clone());
  if (device.is_cpu() || state.size(0) == bytes) return;
  auto gpu = at::globalContext().defaultGenerator(device);
  gpu.set_state(state.narrow(0, bytes, gpu_generator_bytes).clone());
}

// Earlier versions counted the batches of each rank.
std::optional<std::int64_t> samples_in_batches(const Snapshot& snapshot) {
  const auto batches = integer(snapshot, schema::sampler_batches);
  const auto config = try_parse_json(snapshot.config);
  if (!batches || !config.is_object() || !config.contains("batch")) return std::nullopt;
  return *batches * config.value("batch", std::int64_t{1}) * snapshot.world_size;
}

// Earlier versions compressed gradients in ways that kept what they had not sent.
void warn_of_error_feedback(const Snapshot& snapshot) {
  for (const auto& array : snapshot.arrays)
    if (array.path.starts_with(schema::compression))
      return log_warning(
          "the checkpoint has the error feedback of powersgd or topk, which no longer exist; the training "
          "continues without it");
}

}  // namespace

Position position_of(const Snapshot& snapshot) {
  auto samples = integer(snapshot, schema::sampler_samples);
  if (!samples) samples = samples_in_batches(snapshot);
  if (!samples) throw CorruptInput("the checkpoint has no /sampler/samples; resume from another one");
  return {snapshot.step, snapshot.epoch, *samples};
}

void add_order(SnapshotBuilder& snapshot, const SampleOrder& order) {
  snapshot.add_integer(schema::dataset_samples, order.samples);
  snapshot.add_integer(schema::dataset_hash, static_cast<std::int64_t>(order.hash));
  snapshot.add_integer(schema::sampler_seed, static_cast<std::int64_t>(order.seed));
}

void check_order(const Snapshot& snapshot, const SampleOrder& order, const char* data_option) {
  const auto position = position_of(snapshot);
  if (position.samples == 0) return;
  const auto differs = [&](const std::string& path, std::uint64_t here) {
    const auto saved = integer(snapshot, path);
    return saved && static_cast<std::uint64_t>(*saved) != here;
  };
  const auto refuse = [&](const std::string& difference) {
    throw UserError(fmt::format(
        "the checkpoint of step {} was saved within an epoch, of which it has seen {} samples, and {}; resume with the "
        "same {} and --seed, or from a checkpoint at the end of an epoch",
        snapshot.step, position.samples, difference, data_option));
  };
  if (differs(schema::dataset_samples, static_cast<std::uint64_t>(order.samples)))
    refuse(fmt::format("the data then had {} samples, not {}", *integer(snapshot, schema::dataset_samples),
                       order.samples));
  if (differs(schema::dataset_hash, order.hash)) refuse("the data has changed since then");
  if (differs(schema::sampler_seed, order.seed))
    refuse(fmt::format("--seed was {}, not {}", *integer(snapshot, schema::sampler_seed), order.seed));
  if (position.samples > order.samples) refuse(fmt::format("the data has only {} samples", order.samples));
}

void add_loss_scale(SnapshotBuilder& snapshot, const LossScaler& scaler) {
  const auto to = snapshot.add(schema::loss_scale, DType::float64, {});
  std::memcpy(to.data(), &scaler.state().scale, to.size());
  snapshot.add_integer(schema::loss_scale_steps, scaler.state().good_steps);
}

void restore_loss_scale(Session& session, LossScaler& scaler, const Snapshot* snapshot) {
  auto state = scaler.state();
  const Array* const scale = snapshot != nullptr ? snapshot->find(schema::loss_scale) : nullptr;
  if (scale != nullptr && scale->bytes.size() == sizeof state.scale) {
    std::memcpy(&state.scale, scale->bytes.data(), sizeof state.scale);
    state.good_steps = integer(*snapshot, schema::loss_scale_steps).value_or(0);
  }
  session.internals().communicator().broadcast("loss scale", &state, sizeof state, 0);
  scaler.set_state(state);
}

void capture(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
             const Position& position, SnapshotBuilder& snapshot, DeviceCopies* copies) {
  const auto rng = session.all_gather(random_state(session.device()).unsqueeze(0));
  if (session.rank() != 0) return;
  auto& header = snapshot.header();
  header.step = position.step;
  header.epoch = position.epoch;
  header.world_size = session.size();
  // The next forward pass may change buffers, which does not wait for the copies.
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model_tensors(model))
    add(snapshot, schema::model + name,
        copies != nullptr && !tensor.requires_grad() ? tensor.clone() : tensor, copies);
  for (const auto& [name, tensor] : export_optimizer_state(optimizer, parameter_names(model, optimizer)))
    add(snapshot, schema::optimizer + name, tensor, copies);
  snapshot.add_integer(schema::sampler_epoch, position.epoch);
  snapshot.add_integer(schema::sampler_samples, position.samples);
  for (int r = 0; r < session.size(); ++r) add(snapshot, schema::rng(r), rng[r]);
}

void await_writer(Session& session, const CheckpointStore* store) {
  const Span span(session.timeline(), Category::checkpoint, "wait for the last checkpoint");
  for (std::uint8_t busy = 1; busy != 0;) {
    if (store) busy = !store->idle(std::chrono::milliseconds(100));
    session.internals().communicator().broadcast("wait for the last checkpoint", &busy, sizeof busy, 0);
  }
}

ArrayMemory memory_of(torch::nn::Module& model) {
  const auto tensors = model_tensors(model);
  return [by_name = std::map<std::string, torch::Tensor>(tensors.begin(), tensors.end())](
             const Array& array) -> std::span<std::byte> {
    if (!array.path.starts_with(schema::model)) return {};
    const auto found = by_name.find(array.path.substr(schema::model.size()));
    if (found == by_name.end()) return {};
    const auto& tensor = found->second;
    const bool same = tensor.device().is_cpu() && tensor.is_contiguous() &&
                      tensor.sizes().vec() == array.shape && dtype_of(tensor) == array.dtype;
    return same ? std::span(static_cast<std::byte*>(tensor.data_ptr()), bytes_of(tensor))
                : std::span<std::byte>();
  };
}

void load_model(const Snapshot& snapshot, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  std::size_t used = 0;
  for (auto& [name, tensor] : model_tensors(model)) {
    const Array* array = snapshot.find(schema::model + name);
    if (array == nullptr) throw UserError("the checkpoint belongs to another model: it has no " + name);
    if (array->shape != tensor.sizes().vec())
      throw UserError(
          fmt::format("the checkpoint belongs to another model: {} has {} elements there and {} here", name,
                      array->count(), tensor.numel()));
    if (!array->bytes.empty()) tensor.copy_(view_of(*array));
    ++used;
  }
  std::size_t there = 0;
  for (const auto& array : snapshot.arrays) there += array.path.starts_with(schema::model) ? 1 : 0;
  if (there != used)
    throw UserError(fmt::format(
        "the checkpoint belongs to another model: it has {} tensors, and this model has {}", there, used));
}

void load_state(Snapshot& snapshot, torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  load_model(snapshot, model);
  move_optimizer(snapshot, model, optimizer);
}

void restore(Session& session, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
             Snapshot* snapshot) {
  const auto own_bytes = random_state(torch::kCPU).size(0);
  torch::Tensor saved_generators = torch::zeros(2, torch::kInt64);
  torch::Tensor rng;
  session.together([&] {
    if (snapshot == nullptr) return;
    load_state(*snapshot, model, optimizer);
    warn_of_error_feedback(*snapshot);
    std::vector<torch::Tensor> states;
    for (int r = 0; r < session.size(); ++r)
      if (const Array* array = snapshot->find(schema::rng(r))) states.push_back(view_of(*array));
    for (const auto& state : states)
      if (state.dim() != 1 ||
          (state.size(0) != own_bytes && state.size(0) != own_bytes + gpu_generator_bytes))
        throw UserError(
            "the random generators of the checkpoint come from another LibTorch; use the version that "
            "wrote it");
    saved_generators[0] = static_cast<std::int64_t>(states.size());
    if (states.empty()) return;
    rng = torch::stack(states);
    saved_generators[1] = rng.size(1);
  });
  session.broadcast(model);
  session.broadcast(optimizer);
  session.broadcast_(saved_generators);
  const auto saved = saved_generators[0].item<std::int64_t>();
  if (saved > 0) {
    if (!rng.defined()) rng = torch::empty({saved, saved_generators[1].item<std::int64_t>()}, torch::kUInt8);
    session.broadcast_(rng);
    if (session.rank() < saved) set_random_state(rng[session.rank()], session.device());
  }
}

}  // namespace farandole
