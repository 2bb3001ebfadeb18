// Operators of ATen, by the dispatcher, and the conversion of their arguments, as torch.ops does
// it in Python.
// Thread safety: none; use from one thread at a time.
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>

#include "farandole/estimator/exported/operation.h"

namespace farandole {
namespace {

using Type = PreparedArgument::Type;

class DispatcherOperation final : public ExportedOperation {
 public:
  explicit DispatcherOperation(c10::OperatorHandle handle) : handle_(std::move(handle)) {}
  void run(c10::Stack& stack) const override { handle_.callBoxed(stack); }

 private:
  c10::OperatorHandle handle_;
};

// A number instead of a tensor takes the type of the tensors that it is combined with.
at::Tensor wrapped_number(const at::Scalar& number) {
  auto tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue converted(const c10::IValue& value, Type type) {
  if (value.isNone()) return value;
  switch (type) {
    case Type::tensor:
    case Type::optional_tensor:
      if (value.isScalar()) return wrapped_number(value.toScalar());
      break;
    case Type::floating:
      if (value.isInt()) return static_cast<double>(value.toInt());
      if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
      break;
    case Type::integer:
      if (value.isBool()) return static_cast<std::int64_t>(value.toBool());
      break;
    default:
      break;
  }
  return value;
}

bool fits(const c10::IValue& value, Type type) {
  switch (type) {
    case Type::tensor:
      return value.isTensor();
    case Type::optional_tensor:
      return value.isTensor() || value.isNone();
    case Type::integer:
      return value.isInt();
    case Type::floating:
      return value.isDouble();
    case Type::boolean:
      return value.isBool();
    case Type::number:
      return value.isScalar();
    case Type::text:
      return value.isString();
    case Type::any:
      return true;
  }
  return false;
}

template <class T, class Get>
c10::IValue list_as(const std::vector<c10::IValue>& values, Get get) {
  c10::List<T> list;
  list.reserve(values.size());
  for (const auto& value : values) list.push_back(get(value));
  return list;
}

c10::IValue list_of_values(std::vector<c10::IValue> values, Type type) {
  for (auto& value : values) {
    value = converted(value, type);
    if (!fits(value, type))
      throw std::runtime_error(fmt::format("a list has a {} as element", value.tagKind()));
  }
  switch (type) {
    case Type::tensor:
      return list_as<at::Tensor>(values, [](const auto& value) { return value.toTensor(); });
    case Type::optional_tensor:
      return list_as<std::optional<at::Tensor>>(
          values, [](const auto& value) { return value.template toOptional<at::Tensor>(); });
    case Type::integer:
      return list_as<std::int64_t>(values, [](const auto& value) { return value.toInt(); });
    case Type::floating:
      return list_as<double>(values, [](const auto& value) { return value.toDouble(); });
    case Type::boolean:
      return list_as<bool>(values, [](const auto& value) { return value.toBool(); });
    case Type::number:
      return list_as<at::Scalar>(values, [](const auto& value) { return value.toScalar(); });
    case Type::text:
      return list_as<std::string>(values, [](const auto& value) { return value.toStringRef(); });
    case Type::any:
      break;
  }
  return c10::ivalue::Tuple::create(std::move(values));
}

// The type of a parameter, without "optional" and "list of".
Type type_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Type::tensor;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return Type::integer;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return Type::floating;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return Type::boolean;
    case c10::TypeKind::NumberType:
      return Type::number;
    case c10::TypeKind::StringType:
      return Type::text;
    case c10::TypeKind::OptionalType:
      return type_of(*type.castRaw<c10::OptionalType>()->getElementType()) == Type::tensor
                 ? Type::optional_tensor
                 : Type::any;
    default:
      return Type::any;
  }
}

// Prepares an argument for a parameter of this type; `elements` is N of a list with N elements, or else 0.
PreparedArgument prepare_for(const ExportedArgument& argument, const c10::TypePtr& whole, int elements,
                             const SlotOf& slot_of, const ExportedContext& context) {
  auto type = whole;
  const bool is_optional = type->kind() == c10::TypeKind::OptionalType;
  if (is_optional) type = type->castRaw<c10::OptionalType>()->getElementType();
  auto prepared = prepare_argument(argument, slot_of, context);
  const auto* const list = type->castRaw<c10::ListType>();
  if (prepared.kind == PreparedArgument::Kind::constant && prepared.constant.isNone()) {
    if (!is_optional && type->kind() != c10::TypeKind::NoneType)
      throw std::runtime_error("None is no value of an argument");
    return prepared;
  }
  const auto wanted = type_of(list != nullptr ? *list->getElementType() : *type);
  if (list != nullptr && prepared.kind != PreparedArgument::Kind::list) {  // int[2] may be given as one int.
    auto element = std::move(prepared);
    prepared = {.kind = PreparedArgument::Kind::list};
    prepared.elements.assign(static_cast<std::size_t>(std::max(elements, 1)), element);
  }
  if (list == nullptr && prepared.kind == PreparedArgument::Kind::list)
    throw std::runtime_error("a list is no value of an argument");
  prepared.type = wanted;
  if (prepared.kind == PreparedArgument::Kind::constant) {
    prepared.constant = converted(prepared.constant, wanted);
    if (!fits(prepared.constant, wanted))
      throw std::runtime_error(fmt::format("a {} is no {}", prepared.constant.tagKind(), type->str()));
  }
  if (list != nullptr && std::ranges::all_of(prepared.elements, [](const auto& element) {
        return element.kind == PreparedArgument::Kind::constant;
      }))
    return {.kind = PreparedArgument::Kind::constant, .type = wanted, .constant = prepared.in({})};
  return prepared;
}

// "torch.ops.aten.add.Tensor" is aten::add.Tensor, and "torch.ops.aten.relu.default" is aten::relu.
std::optional<c10::OperatorHandle> find_operator(std::string_view target) {
  constexpr std::string_view prefix = "torch.ops.aten.";
  // A file of the machine must not become a tensor, let alone be written.
  constexpr std::array forbidden = {std::string_view("from_file")};
  if (!target.starts_with(prefix)) return std::nullopt;
  target.remove_prefix(prefix.size());
  const auto dot = target.find('.');
  if (dot == target.npos) return std::nullopt;
  const auto name = target.substr(0, dot), overload = target.substr(dot + 1);
  if (std::ranges::find(forbidden, name) != forbidden.end()) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema(
      {fmt::format("aten::{}", name), overload == "default" ? "" : std::string(overload)});
}

}  // namespace

c10::IValue PreparedArgument::in(const ExportedFrame& frame) const {
  if (kind == Kind::constant) return constant;
  if (kind == Kind::value) return converted(frame[slot], type);
  std::vector<c10::IValue> values;
  values.reserve(elements.size());
  for (const auto& element : elements) values.push_back(element.in(frame));
  return list_of_values(std::move(values), type);
}

PreparedArgument prepare_argument(const ExportedArgument& argument, const SlotOf& slot_of,
                                  const ExportedContext& context) {
  PreparedArgument prepared;
  const auto of = [&](const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, ExportedArgument::Name>) {
      prepared.kind = PreparedArgument::Kind::value;
      prepared.slot = slot_of(value.text);
    } else if constexpr (std::is_same_v<Value, ExportedArgument::List>) {
      prepared.kind = PreparedArgument::Kind::list;
      for (const auto& element : value)
        prepared.elements.push_back(prepare_argument(element, slot_of, context));
    } else if constexpr (std::is_same_v<Value, c10::ScalarType> || std::is_same_v<Value, c10::Layout> ||
                         std::is_same_v<Value, c10::MemoryFormat>) {
      prepared.constant = static_cast<std::int64_t>(value);
    } else if constexpr (std::is_same_v<Value, c10::Device>) {
      prepared.constant = context.device;
    } else if constexpr (std::is_same_v<Value, ExportedArgument::Unknown> ||
                         std::is_same_v<Value, std::shared_ptr<const ExportedGraph>>) {
      throw std::runtime_error(fmt::format("{} is no value of an argument", argument.kind));
    } else if constexpr (!std::is_same_v<Value, std::monostate>) {
      prepared.constant = value;
    }
  };
  std::visit(of, argument.value);
  return prepared;
}

PreparedNode prepare_operator(const ExportedNode& node, const SlotOf& slot_of, ExportedContext& context) {
  const auto handle = find_operator(node.target);
  const bool has_unknown = std::ranges::any_of(node.inputs, [](const auto& input) {
    return std::holds_alternative<ExportedArgument::Unknown>(input.value.value);
  });
  if (!handle || has_unknown) {
    context.missing.insert(node.target);
    return {};
  }
  PreparedNode prepared{std::make_unique<DispatcherOperation>(*handle), {}};
  std::size_t used = 0;
  for (const auto& parameter : handle->schema().arguments()) {
    const auto input = std::ranges::find(node.inputs, parameter.name(), &ExportedNode::Input::name);
    if (input != node.inputs.end()) {
      ++used;
      try {
        prepared.arguments.push_back(
            prepare_for(input->value, parameter.type(), parameter.N().value_or(0), slot_of, context));
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{} of {}: {}", parameter.name(), node.target, error.what()));
      }
    } else if (parameter.default_value()) {
      prepared.arguments.push_back(
          {.kind = PreparedArgument::Kind::constant, .constant = *parameter.default_value()});
    } else {
      throw std::runtime_error(fmt::format("{} has no argument {}", node.target, parameter.name()));
    }
  }
  if (used != node.inputs.size())
    throw std::runtime_error(fmt::format("{} has other arguments", node.target));
  return prepared;
}

}  // namespace farandole
