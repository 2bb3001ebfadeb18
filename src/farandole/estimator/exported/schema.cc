#include "farandole/estimator/exported/schema.h"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace farandole {
namespace {

using c10::ScalarType;

struct DtypeName {
  std::int64_t number;  // In the schema; c10 has others.
  ScalarType dtype;
  const char* name;
};
constexpr std::array dtype_names = {DtypeName{1, ScalarType::Byte, "uint8"},
                                    DtypeName{2, ScalarType::Char, "int8"},
                                    DtypeName{3, ScalarType::Short, "int16"},
                                    DtypeName{4, ScalarType::Int, "int32"},
                                    DtypeName{5, ScalarType::Long, "int64"},
                                    DtypeName{6, ScalarType::Half, "float16"},
                                    DtypeName{7, ScalarType::Float, "float32"},
                                    DtypeName{8, ScalarType::Double, "float64"},
                                    DtypeName{9, ScalarType::ComplexHalf, "complex32"},
                                    DtypeName{10, ScalarType::ComplexFloat, "complex64"},
                                    DtypeName{11, ScalarType::ComplexDouble, "complex128"},
                                    DtypeName{12, ScalarType::Bool, "bool"},
                                    DtypeName{13, ScalarType::BFloat16, "bfloat16"},
                                    DtypeName{28, ScalarType::UInt16, "uint16"},
                                    DtypeName{29, ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
                                    DtypeName{30, ScalarType::Float8_e5m2, "float8_e5m2"},
                                    DtypeName{31, ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz"},
                                    DtypeName{32, ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz"}};

template <class T, std::size_t N>
T numbered(const Json& json, const std::array<T, N>& values, const char* what) {
  const auto number = exported_integer(json);
  if (number < 1 || number > static_cast<std::int64_t>(N))
    throw std::runtime_error(fmt::format("there is no {} {}", what, number));
  return values[static_cast<std::size_t>(number - 1)];
}

ExportedExtent extent(const Json& json) {
  if (json.contains("as_int")) return {exported_integer(json.at("as_int")), false};
  const auto& hint = json.at("as_expr").value("hint", Json());
  return {hint.is_object() ? exported_integer(hint.at("as_int")) : 0, true};
}

std::vector<ExportedExtent> extents(const Json& json) {
  std::vector<ExportedExtent> result;
  for (const auto& element : json) result.push_back(extent(element));
  return result;
}

}  // namespace

std::int64_t exported_integer(const Json& json) {
  if (!json.is_number_integer() ||
      (json.is_number_unsigned() &&
       json.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())))
    throw std::runtime_error(fmt::format("{} is no integer", json_text(json)));
  return json.get<std::int64_t>();
}

double exported_number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto& text = json.get_ref<const std::string&>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  throw std::runtime_error(fmt::format("{} is no number", json_text(json)));
}

c10::ScalarType exported_dtype(const Json& json) {
  const auto number = exported_integer(json);
  for (const auto& dtype : dtype_names)
    if (dtype.number == number) return dtype.dtype;
  throw std::runtime_error(fmt::format("there is no type of elements {}", number));
}

std::int64_t exported_number_of(c10::ScalarType wanted) {
  for (const auto& dtype : dtype_names)
    if (dtype.dtype == wanted) return dtype.number;
  throw std::runtime_error(fmt::format("torch.export has no {}", c10::toString(wanted)));
}

c10::Layout exported_layout(const Json& json) {
  return numbered(
      json,
      std::array{c10::Layout::Sparse, c10::Layout::SparseCsr, c10::Layout::SparseCsc, c10::Layout::SparseBsr,
                 c10::Layout::SparseBsc, c10::Layout::Mkldnn, c10::Layout::Strided},
      "layout");
}

c10::MemoryFormat exported_memory_format(const Json& json) {
  return numbered(json,
                  std::array{c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
                             c10::MemoryFormat::ChannelsLast3d, c10::MemoryFormat::Preserve},
                  "memory format");
}

c10::Device exported_device(const Json& json) {
  const auto index = json.value("index", Json());
  return c10::Device(json.at("type").get<std::string>() +
                     (index.is_null() ? "" : fmt::format(":{}", exported_integer(index))));
}

ExportedTensorMeta exported_tensor_meta(const Json& json) {
  if (exported_layout(json.at("layout")) != c10::Layout::Strided)
    throw std::runtime_error("a tensor is not dense");
  return {exported_dtype(json.at("dtype")), extents(json.at("sizes")), extents(json.at("strides")),
          extent(json.at("storage_offset")), json.at("requires_grad").get<bool>()};
}

const char* python_name(c10::ScalarType wanted) {
  for (const auto& dtype : dtype_names)
    if (dtype.dtype == wanted) return dtype.name;
  return c10::toString(wanted);
}

std::string describe(const ExportedTensorMeta& meta) {
  std::vector<std::string> sizes;
  for (const auto& size : meta.sizes)
    sizes.push_back(!size.is_dynamic ? std::to_string(size.value) : sizes.empty() ? "rows" : "any");
  return fmt::format("{} [{}]", python_name(meta.dtype), fmt::join(sizes, ", "));
}

}  // namespace farandole
