#include "farandole/train/run/training_state.h"

#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <torch/utils.h>
#include <type_traits>
#include <unordered_map>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/base/text/json.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/distributed_optimizer.h"
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

NamedTensors tensors_of(const TrackedState& state) {
  NamedTensors tensors;
  for (const auto& [prefix, module] : state.modules) {
    for (const auto& item : module->named_parameters())
      tensors.emplace_back(prefix + item.key(), item.value());
    for (const auto& item : module->named_buffers())
      if (item.value().defined()) tensors.emplace_back(prefix + item.key(), item.value());
  }
  return tensors;
}

using ParameterNames = std::unordered_map<const torch::TensorImpl*, std::string>;

ParameterNames names_of_parameters(const TrackedState& state) {
  ParameterNames names;
  for (const auto& [prefix, module] : state.modules)
    for (const auto& item : module->named_parameters())
      names[item.value().unsafeGetTensorImpl()] = prefix + item.key();
  return names;
}

// Returns the name in the modules of each parameter of the optimizer.
std::vector<std::string> parameter_names(const ParameterNames& tracked, torch::optim::Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = tracked.find(parameter.unsafeGetTensorImpl());
      names.push_back(found != tracked.end() ? found->second : fmt::format("parameter-{}", names.size()));
    }
  }
  return names;
}

// The same by the address of the parameter.
ParameterNames names_in(const ParameterNames& tracked, torch::optim::Optimizer& optimizer) {
  const auto names = parameter_names(tracked, optimizer);
  ParameterNames result;
  auto name = names.begin();
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) result[parameter.unsafeGetTensorImpl()] = *name++;
  return result;
}

// As DistributedOptimizer::visit_state(), for any optimizer.
void visit_state(Session& session, torch::optim::Optimizer& optimizer, const VisitOptimizerState& visit) {
  if (auto* const distributed = session.internals().optimizer_of(optimizer))
    distributed->visit_state(visit);
  else
    visit_optimizer_state(optimizer, visit);
}

// The state of a parameter belongs to the first optimizer that has it. What belongs to none goes to the first
// one, which refuses it by name.
void move_optimizers(Snapshot& snapshot, const TrackedState& tracked) {
  const auto& optimizers = tracked.optimizers;
  if (optimizers.empty()) return;
  const auto known = names_of_parameters(tracked);
  std::vector<std::vector<std::string>> names;
  std::map<std::string, std::size_t> owner;
  for (std::size_t k = 0; k < optimizers.size(); ++k) {
    names.push_back(parameter_names(known, *optimizers[k]));
    for (const auto& name : names.back()) owner.emplace(name, k);
  }
  std::vector<NamedTensors> states(optimizers.size());
  for (auto& array : snapshot.arrays) {
    if (!array.path.starts_with(schema::optimizer)) continue;
    const auto name = array.path.substr(schema::optimizer.size());
    const auto found = owner.find(name.substr(0, name.rfind('/')));
    states[found == owner.end() ? 0 : found->second].emplace_back(
        name, tensor_of(std::move(array.bytes), array.shape, scalar_type_of(array.dtype)));
  }
  for (std::size_t k = 0; k < optimizers.size(); ++k)
    import_optimizer_state(*optimizers[k], names[k], states[k]);
}

// The values as tensors that refer to them, so that one way of saving and loading serves all.
NamedTensors tensors_of_values(const TrackedState& state) {
  NamedTensors tensors;
  for (const auto& [name, value] : state.values)
    std::visit(
        [&, name = name](auto* to) {
          using T = std::remove_pointer_t<decltype(to)>;
          if constexpr (std::is_same_v<T, torch::Tensor>)
            tensors.emplace_back(name, *to);
          else
            tensors.emplace_back(
                name, torch::from_blob(to, {}, std::is_same_v<T, double> ? torch::kFloat64 : torch::kInt64));
        },
        value);
  return tensors;
}

std::string scaler_path(const std::string& path, std::size_t index) {
  return index == 0 ? path : fmt::format("{}-{}", path, index);
}

void add_loss_scale(SnapshotBuilder& snapshot, const LossScaler& scaler, std::size_t index) {
  const auto to = snapshot.add(scaler_path(schema::loss_scale, index), DType::float64, {});
  std::memcpy(to.data(), &scaler.state().scale, to.size());
  snapshot.add_integer(scaler_path(schema::loss_scale_steps, index), scaler.state().good_steps);
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

// Collective, as restore().
void restore_loss_scale(Session& session, LossScaler& scaler, const Snapshot* snapshot, std::size_t index) {
  auto state = scaler.state();
  const Array* const scale =
      snapshot != nullptr ? snapshot->find(scaler_path(schema::loss_scale, index)) : nullptr;
  if (scale != nullptr && scale->bytes.size() == sizeof state.scale) {
    std::memcpy(&state.scale, scale->bytes.data(), sizeof state.scale);
    state.good_steps = integer(*snapshot, scaler_path(schema::loss_scale_steps, index)).value_or(0);
  }
  session.internals().communicator().broadcast("loss scale", &state, sizeof state, 0);
  scaler.set_state(state);
}

void load_values(const Snapshot& snapshot, const TrackedState& state) {
  for (auto& [name, tensor] : tensors_of_values(state)) {
    const Array* const array = snapshot.find(schema::values + name);
    if (array == nullptr) continue;
    if (array->shape != tensor.sizes().vec())
      throw UserError(fmt::format("{} has {} elements in the checkpoint and {} here; track the same values",
                                  name, array->count(), tensor.numel()));
    if (!array->bytes.empty()) tensor.copy_(view_of(*array));
  }
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

void check_order(const Snapshot& snapshot, const SampleOrder& order, const char* data_option,
                 const char* seed_option) {
  const auto position = position_of(snapshot);
  if (position.samples == 0) return;
  const auto differs = [&](const std::string& path, std::uint64_t here) {
    const auto saved = integer(snapshot, path);
    return saved && static_cast<std::uint64_t>(*saved) != here;
  };
  const auto refuse = [&](const std::string& difference) {
    throw UserError(fmt::format(
        "the checkpoint of step {} was saved within an epoch, of which it has seen {} samples, and {}; resume with the "
        "same {} and {}, or from a checkpoint at the end of an epoch",
        snapshot.step, position.samples, difference, data_option, seed_option));
  };
  if (differs(schema::dataset_samples, static_cast<std::uint64_t>(order.samples)))
    refuse(fmt::format("the data then had {} samples, not {}", *integer(snapshot, schema::dataset_samples),
                       order.samples));
  if (differs(schema::dataset_hash, order.hash)) refuse("the data has changed since then");
  if (differs(schema::sampler_seed, order.seed))
    refuse(
        fmt::format("{} was {}, not {}", seed_option, *integer(snapshot, schema::sampler_seed), order.seed));
  if (position.samples > order.samples) refuse(fmt::format("the data has only {} samples", order.samples));
}

std::size_t bytes_on_gpu(const TrackedState& state) {
  std::size_t bytes = 0;
  const auto count = [&](const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors)
      if (tensor.is_cuda()) bytes += tensor.nbytes();
  };
  count(tensors_of(state));
  const auto known = names_of_parameters(state);
  for (auto* const optimizer : state.optimizers)
    count(export_optimizer_state(*optimizer, parameter_names(known, *optimizer)));
  count(tensors_of_values(state));
  return bytes;
}

void capture(Session& session, const TrackedState& state, const Position& position, SnapshotBuilder& snapshot,
             DeviceCopies* copies) {
  const auto rng = session.all_gather(random_state(session.device()).unsqueeze(0));
  if (session.rank() != 0) {
    for (auto* const optimizer : state.optimizers) visit_state(session, *optimizer, [](auto&&...) {});
    return;
  }
  auto& header = snapshot.header();
  header.step = position.step;
  header.epoch = position.epoch;
  header.world_size = session.size();
  // The next forward pass may change buffers, which does not wait for the copies.
  const torch::NoGradGuard no_grad;
  const auto add_copy = [&](const std::string& path, const torch::Tensor& tensor) {
    add(snapshot, path, copies != nullptr && !tensor.requires_grad() ? tensor.clone() : tensor, copies);
  };
  for (const auto& [name, tensor] : tensors_of(state)) add_copy(schema::model + name, tensor);
  const auto known = names_of_parameters(state);
  for (auto* const optimizer : state.optimizers) {
    const auto names = names_in(known, *optimizer);
    visit_state(session, *optimizer, [&](const torch::Tensor& parameter, auto& its) {
      // Tensors that are made for this call are not kept on the device.
      auto* const later = optimizer->state().count(parameter.unsafeGetTensorImpl()) > 0 ? copies : nullptr;
      for (const auto& [name, tensor] :
           named_state(*optimizer, its, names.at(parameter.unsafeGetTensorImpl())))
        add(snapshot, schema::optimizer + name, tensor, later);
    });
  }
  for (const auto& [name, tensor] : tensors_of_values(state)) add_copy(schema::values + name, tensor);
  for (std::size_t k = 0; k < state.scalers.size(); ++k)
    if (state.scalers[k] != nullptr) add_loss_scale(snapshot, *state.scalers[k], k);
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
  TrackedState state;
  state.modules.emplace_back("", &model);
  return memory_of(state);
}

ArrayMemory memory_of(const TrackedState& state) {
  const auto tensors = tensors_of(state);
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

namespace {

void load_modules(const Snapshot& snapshot, const TrackedState& state) {
  std::size_t used = 0;
  for (auto& [name, tensor] : tensors_of(state)) {
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

}  // namespace

void load_model(const Snapshot& snapshot, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  TrackedState state;
  state.modules.emplace_back("", &model);
  load_modules(snapshot, state);
}

void load_state(Snapshot& snapshot, const TrackedState& state) {
  const torch::NoGradGuard no_grad;
  load_modules(snapshot, state);
  load_values(snapshot, state);
  move_optimizers(snapshot, state);
}

void restore(Session& session, const TrackedState& state, Snapshot* snapshot) {
  const auto own_bytes = random_state(torch::kCPU).size(0);
  torch::Tensor saved_generators = torch::zeros(2, torch::kInt64);
  torch::Tensor rng;
  // What is loaded takes the place of the whole state.
  for (auto* const optimizer : state.optimizers)
    if (auto* const distributed = session.internals().optimizer_of(*optimizer)) distributed->gather_state();
  session.together([&] {
    if (snapshot == nullptr) return;
    load_state(*snapshot, state);
    warn_of_error_feedback(*snapshot);
    std::vector<torch::Tensor> states;
    for (int r = 0; r < session.size(); ++r)
      if (const Array* array = snapshot->find(schema::rng(r))) states.push_back(view_of(*array));
    for (const auto& generator : states)
      if (generator.dim() != 1 ||
          (generator.size(0) != own_bytes && generator.size(0) != own_bytes + gpu_generator_bytes))
        throw UserError(
            "the random generators of the checkpoint come from another LibTorch; use the version that "
            "wrote it");
    saved_generators[0] = static_cast<std::int64_t>(states.size());
    if (states.empty()) return;
    rng = torch::stack(states);
    saved_generators[1] = rng.size(1);
  });
  for (const auto& [prefix, module] : state.modules) session.broadcast(*module);
  for (auto* const optimizer : state.optimizers) session.broadcast(*optimizer);
  for (auto& [name, tensor] : tensors_of_values(state)) session.broadcast_(tensor);
  for (std::size_t k = 0; k < state.scalers.size(); ++k)
    if (state.scalers[k] != nullptr) restore_loss_scale(session, *state.scalers[k], snapshot, k);
  session.broadcast_(saved_generators);
  const auto saved = saved_generators[0].item<std::int64_t>();
  if (saved > 0) {
    if (!rng.defined()) rng = torch::empty({saved, saved_generators[1].item<std::int64_t>()}, torch::kUInt8);
    session.broadcast_(rng);
    if (session.rank() < saved) set_random_state(rng[session.rank()], session.device());
  }
}

}  // namespace farandole
