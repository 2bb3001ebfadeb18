#include "farandole/estimator/models/exported_model.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <new>
#include <set>
#include <torch/utils.h>
#include <tuple>

#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

struct ReadProgram {
  std::string file;
  std::shared_ptr<ExportedArchive> archive;
  ExportedProgram program;
};

// Calls `work`, which reads the file, and makes its errors those of the file.
template <class Work>
auto reading(const std::string& file, Work work) {
  const auto damaged = [&](const std::string& text) {
    return CorruptInput(
        fmt::format("{} is damaged: {}; write it again with torch.export.save(program, FILE)", file, text));
  };
  try {
    return work();
  } catch (const UserError& error) {
    throw UserError(fmt::format("{} cannot be used: {}", file, error.what()));
  } catch (const std::bad_alloc&) {
    throw damaged("it asks for more memory than there is");
  } catch (const std::exception& error) {
    throw damaged(brief(error));
  }
}

std::vector<ReadProgram> programs_of(const fs::path& path) {
  const auto file = path.string();
  if (!fs::is_regular_file(path)) throw UserError(fmt::format("there is no model {}", file));
  return reading(file, [&] {
    const auto archive = std::make_shared<ExportedArchive>(path);
    std::vector<ReadProgram> programs;
    for (const auto& name : archive->programs())
      programs.push_back({file, archive, parse_exported_program(name, archive->document(name))});
    return programs;
  });
}

std::string export_line(std::size_t inputs, const char* mode) {
  return fmt::format(
      "torch.export.export(net{}, example, dynamic_shapes=({{0: torch.export.Dim.DYNAMIC}},){})", mode,
      inputs == 1 ? "" : fmt::format(" * {}", inputs));
}

// Throws: UserError if the program takes batches of one size only.
void check_batch(const ReadProgram& read) {
  const auto users = read.program.user_inputs();
  for (const auto* const input : users)
    if (input->meta->sizes.empty() || !input->meta->sizes.front().is_dynamic)
      throw UserError(fmt::format(
          "its input {} has shape {}, so it takes batches of one size only; export it with {} and an example of at least 2 rows",
          input->name, describe(*input->meta), export_line(users.size(), "")));
}

// Which of the programs trains: the one with more layers that do what they do in training only, or which
// changes more buffers. If that does not tell, names do, and in two files their order.
void put_training_first(std::vector<ReadProgram>& programs, bool in_one_file) {
  const auto& first = programs.front().program;
  const auto inputs = first.user_inputs().size();
  if (programs.size() > 2)
    throw UserError(fmt::format(
        "there are {} programs, and a model has one for training and one for evaluation", programs.size()));
  if (programs.size() == 1) {
    if (first.is_same_in_both_modes()) return;
    const bool trains = first.trains();
    throw UserError(fmt::format(
        "it has only the program for {}, and {} differs in {}; add torch.export.save({}, \"other.pt2\") and --eval-model other.pt2",
        trains ? "training" : "evaluation", first.mode_operator, trains ? "evaluation" : "training",
        export_line(inputs, trains ? ".eval()" : ".train()")));
  }
  const auto& second = programs.back().program;
  const auto rank_of = [&](const ExportedProgram& program) {
    return std::tuple(program.training_operators, program.changed_buffers,
                      in_one_file && program.name.starts_with("train"));
  };
  if (first.training_operators == second.training_operators && first.training_operators > 0 &&
      first.changed_buffers == second.changed_buffers)
    throw UserError(fmt::format(
        "both programs{} are for training ({}); export one of them with {}, and call functions for dropout with "
        "training=self.training",
        in_one_file ? "" : fmt::format(" ({} and {})", programs.front().file, programs.back().file),
        first.mode_operator, export_line(inputs, ".eval()")));
  if (rank_of(first) == rank_of(second) && in_one_file)
    throw UserError(
        "nothing says which of the two programs is for training; call it \"train\", or save them in two files");
  if (rank_of(second) > rank_of(first)) std::swap(programs.front(), programs.back());
}

// A tensor that the archive does not have under this name, or with another shape or type, is
// of another model.
at::Tensor same_tensor(const ExportedTensors& tensors, const ExportedInput& input) {
  const auto* const found = tensors.find(input.target);
  const auto& meta = *input.meta;
  const auto wanted = [&] { return fmt::format("its {} is {}", input.target, describe(meta)); };
  if (found == nullptr)
    throw UserError(fmt::format("{}, and the model has none; export both programs from one model", wanted()));
  auto sizes = found->value.sizes();
  auto dtype = found->value.scalar_type();
  if (c10::isComplexType(meta.dtype) && !c10::isComplexType(dtype)) {  // Pairs.
    dtype = c10::toComplexType(dtype);
    sizes = sizes.slice(0, sizes.size() - 1);
  }
  if (dtype != meta.dtype || !std::ranges::equal(sizes, meta.sizes, {}, {}, &ExportedExtent::value))
    throw UserError(fmt::format("{}, and that of the model is {} [{}]; export both programs from one model",
                                wanted(), python_name(dtype), fmt::join(sizes, ", ")));
  return found->value;
}

void check_no_pickle(const ExportedTensors& tensors) {
  if (!tensors.pickled.empty())
    throw UserError(fmt::format(
        "{} is a pickle, which can run code and is not read; make it a tensor with net.register_buffer({:?}, torch.Tensor(...))",
        tensors.pickled, tensors.pickled));
}

// An optimizer moves each trained parameter to a place of its own, so another tensor would no
// longer follow it.
void check_own_memory(const ExportedTensors& weights) {
  struct Place {
    std::int64_t begin, end;
    const ExportedTensors::Item* item;
  };
  std::map<const void*, std::vector<Place>> places;  // By storage.
  std::set<const void*> seen;
  for (const auto& item : weights.items) {
    const auto& value = item.value;
    if (value.numel() == 0 || !seen.insert(value.unsafeGetTensorImpl()).second) continue;
    auto end = value.storage_offset() + 1;
    for (std::int64_t i = 0; i < value.dim(); ++i) end += (value.size(i) - 1) * value.stride(i);
    places[value.storage().unsafeGetStorageImpl()].push_back({value.storage_offset(), end, &item});
  }
  for (auto& [storage, of_storage] : places) {
    std::ranges::sort(of_storage, {}, &Place::begin);
    const Place *last = nullptr, *last_trained = nullptr;  // Those that end last among the earlier ones.
    for (const auto& place : of_storage) {
      const bool is_trained = place.item->value.requires_grad();
      const auto* const other = is_trained ? last : last_trained;
      if (other != nullptr && place.begin < other->end) {
        const auto* first = std::min(place.item, other->item);
        const auto* second = std::max(place.item, other->item);
        if (!first->value.requires_grad()) std::swap(first, second);
        throw UserError(fmt::format(
            "its {} shares memory with {}, which is another tensor; compute the latter in forward, or "
            "give it a copy with .detach().clone()",
            first->name, second->name));
      }
      if (last == nullptr || place.end > last->end) last = &place;
      if (is_trained && (last_trained == nullptr || place.end > last_trained->end)) last_trained = &place;
    }
  }
}

// Throws: UserError if an operator of the program is missing.
std::unique_ptr<const BoundProgram> bind(ExportedProgram program, torch::Device device,
                                         const ExportedTensors& weights, const ExportedTensors& constants) {
  auto bound =
      std::make_unique<const BoundProgram>(std::move(program), device, [&](const ExportedInput& input) {
        const bool is_constant = input.kind == ExportedInput::Kind::constant || !input.persistent;
        return same_tensor(is_constant ? constants : weights, input);
      });
  if (!bound->missing().empty())
    throw UserError(fmt::format("it needs {}, which this LibTorch cannot run; replace {} in the model{}",
                                fmt::join(bound->missing(), ", "),
                                bound->missing().size() == 1 ? "it" : "them",
                                bound->missing().begin()->starts_with("torch.ops.higher_order.")
                                    ? " by a loop of Python"
                                    : ", or try torch.export.export(...).run_decompositions()"));
  return bound;
}

// Returns the inputs in the types that the program takes.
std::vector<torch::Tensor> accepted(const BoundProgram& bound, const std::string& file,
                                    const std::vector<torch::Tensor>& inputs) {
  const auto users = bound.program().user_inputs();
  bool fits = inputs.size() == users.size();
  for (std::size_t i = 0; fits && i < inputs.size(); ++i) {
    const auto& meta = *users[i]->meta;
    fits = static_cast<std::size_t>(inputs[i].dim()) == meta.sizes.size() &&
           (c10::isFloatingType(meta.dtype) || !inputs[i].is_floating_point());
    for (std::size_t k = 0; fits && k < meta.sizes.size(); ++k)
      fits = meta.sizes[k].is_dynamic || meta.sizes[k].value == inputs[i].size(static_cast<std::int64_t>(k));
  }
  if (!fits) {
    std::vector<std::string> takes, gets;
    for (const auto* const user : users)
      takes.push_back(fmt::format("{} {}", user->name, describe(*user->meta)));
    for (const auto& input : inputs)
      gets.push_back(
          fmt::format("{} [{}]", python_name(input.scalar_type()), fmt::join(input.sizes(), ", ")));
    throw UserError(
        fmt::format("{} takes {}, and gets {}; choose other --features, with :int64 behind those of whole "
                    "numbers, or --input-shapes",
                    file, fmt::join(takes, ", "), fmt::join(gets, ", ")));
  }
  if (const auto guard = bound.guards().violated_by(inputs); !guard.empty())
    throw UserError(fmt::format(
        "{} holds for inputs with {} only, and gets {} rows; replace a Python if on sizes by torch.cond, export it "
        "with an example of as many rows, or choose another --batch-size, or --drop-last",
        file, guard, inputs.front().size(0)));
  auto result = inputs;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = result[i].to(users[i]->meta->dtype);
  return result;
}

// The modules of a dotted name, as optimizers and checkpoints of this library need them.
class ExportedModule : public torch::nn::Module {
 public:
  void add(std::string_view path, const torch::Tensor& value, bool is_parameter, int depth = 0) {
    constexpr int deepest = 64;
    const auto dot = path.find('.');
    const std::string first(path.substr(0, dot));
    if (first.empty() || depth > deepest)
      throw std::runtime_error("a tensor has a name without a word, or with too many");
    if (dot != path.npos) {
      auto& child = modules_[first];
      if (child == nullptr) child = register_module(first, std::make_shared<ExportedModule>());
      child->add(path.substr(dot + 1), value, is_parameter, depth + 1);
    } else if (is_parameter) {
      register_parameter(first, value, value.requires_grad());
    } else {
      register_buffer(first, value);
    }
  }

 private:
  std::map<std::string, std::shared_ptr<ExportedModule>> modules_;
};

// Equal for tensors that are the same view of the same memory.
auto view_of(const torch::Tensor& value) {
  return std::tuple(static_cast<const void*>(value.storage().unsafeGetStorageImpl()), value.storage_offset(),
                    value.sizes().vec(), value.strides().vec(), value.scalar_type());
}

}  // namespace

void visit_exported_programs(const std::string& file,
                             const std::function<void(const ExportedProgram&)>& visit) {
  for (const auto& read : programs_of(file)) reading(file, [&] { visit(read.program); });
}

ExportedModel::ExportedModel(const fs::path& file, const fs::path& evaluation_file, torch::Device device)
    : ModelProgram(file) {
  auto programs = programs_of(file);
  if (!evaluation_file.empty())
    for (auto& program : programs_of(evaluation_file)) programs.push_back(std::move(program));
  reading(file_, [&] { put_training_first(programs, evaluation_file.empty()); });
  file_ = programs.front().file;
  for (const auto& read : programs) reading(read.file, [&] { check_batch(read); });
  reading(file_, [&] {
    weights_ = programs.front().archive->weights(programs.front().program.name, device);
    check_no_pickle(weights_);
    // Collectives and checkpoints know real numbers only. To optimizers, complex numbers are pairs anyway.
    for (auto& [name, value, is_parameter] : weights_.items)
      if (value.is_complex()) {
        value = at::view_as_real(value.detach()).set_requires_grad(value.requires_grad());
        complex_.insert(name);
      }
    // Tied weights are one tensor.
    std::map<decltype(view_of({})), torch::Tensor> views;
    for (auto& item : weights_.items)
      if (item.value.numel() > 0) item.value = views.emplace(view_of(item.value), item.value).first->second;
    check_own_memory(weights_);
    add_to_module(programs.front().program);
  });
  std::map<std::string, torch::Tensor> shared;  // Buffers that are not in the state dict.
  for (auto& read : programs)
    reading(read.file, [&] {
      auto& part = &read == &programs.front() ? training_ : evaluation_.emplace();
      part.example_inputs = read.archive->example_inputs(read.program.name);
      part.constants = read.archive->constants(read.program.name, device);
      check_no_pickle(part.constants);
      std::set<std::string> buffers;
      for (const auto& input : read.program.inputs)
        if (input.kind == ExportedInput::Kind::buffer) buffers.insert(input.target);
      for (auto& constant : part.constants.items)
        if (buffers.contains(constant.name))
          constant.value = shared.emplace(constant.name, constant.value).first->second;
      part.bound = bind(std::move(read.program), device, weights_, part.constants);
    });
}

void ExportedModel::add_to_module(const ExportedProgram& program) {
  const auto module = std::make_shared<ExportedModule>();
  std::map<const torch::TensorImpl*, std::string> seen;
  for (const auto& input : program.inputs) {
    const bool is_parameter = input.kind == ExportedInput::Kind::parameter;
    if (!is_parameter && (input.kind != ExportedInput::Kind::buffer || !input.persistent)) continue;
    const auto value = same_tensor(weights_, input);
    const auto [first, is_new] = seen.emplace(value.unsafeGetTensorImpl(), input.target);
    if (is_new)
      module->add(input.target, value, is_parameter);
    else
      tied_.emplace_back(input.target, first->second);
  }
  view_ = module;
}

std::vector<torch::Tensor> ExportedModel::run(const std::vector<torch::Tensor>& inputs) {
  return active().bound->run(accepted(*active().bound, file_, inputs));
}

void ExportedModel::try_training(const std::vector<torch::Tensor>& inputs) {
  auto buffers = view_->buffers();
  for (const auto& item : training_.constants.items) buffers.push_back(item.value);
  std::vector<torch::Tensor> before;
  for (const auto& buffer : buffers) before.push_back(buffer.clone());
  const auto restore = [&] {
    for (std::size_t i = 0; i < before.size(); ++i) buffers[i].copy_(before[i]);
  };
  try {
    training_.bound->run(accepted(*training_.bound, file_, inputs));
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

// The program for evaluation is the one that torch.export.load returns.
void ExportedModel::write(const std::string& file) {
  ExportedArchiveWriter writer(file);
  auto weights = weights_;
  std::map<const torch::TensorImpl*, torch::Tensor> pairs;  // Tied weights stay one tensor.
  for (auto& [name, value, is_parameter] : weights.items)
    if (complex_.contains(name)) {
      auto& whole = pairs[value.unsafeGetTensorImpl()];
      if (!whole.defined())
        whole = at::complex(value.detach().select(-1, 0), value.detach().select(-1, 1))
                    .set_requires_grad(value.requires_grad());
      value = whole;
    }
  const auto add = [&](const char* name, const Part& part) {
    writer.add(name, part.bound->program().document, part.example_inputs, weights, part.constants);
  };
  add("model", evaluation_ ? *evaluation_ : training_);
  if (evaluation_) add("train", training_);
  writer.close();
}

LabelFunction load_exported_function(const fs::path& file, torch::Device device) {
  auto programs = programs_of(file);
  const auto name = file.string();
  return reading(name, [&] {
    auto& [path, archive, program] = programs.front();
    if (programs.size() != 1 || !program.is_same_in_both_modes() || program.user_inputs().size() != 2 ||
        program.outputs.size() != 1)
      throw UserError("a loss or a metric is one program of output and label that returns one tensor");
    check_batch(programs.front());
    const auto weights = archive->weights(program.name, device),
               constants = archive->constants(program.name, device);
    const std::shared_ptr<const BoundProgram> bound = bind(std::move(program), device, weights, constants);
    return LabelFunction([bound, name](const torch::Tensor& output, const torch::Tensor& label) {
      return bound->run(accepted(*bound, name, {output, label})).front();
    });
  });
}

}  // namespace farandole
