#include "farandole/checkpoint/hdf5_types.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace farandole {
namespace {

using Kind = Hdf5Dataset::Kind;

// Arrays are copied between memory and file without conversion.
static_assert(std::endian::native == std::endian::little);

// A 16-bit float: the sign is bit 15, and the exponent is above a mantissa of `mantissa_bits`.
Hdf5Handle half_type(std::size_t mantissa_bits, std::size_t bias, const Hdf5Check& check) {
  auto type = check(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "H5Tcopy");
  check(H5Tset_fields(type.get(), 15, mantissa_bits, 15 - mantissa_bits, 0, mantissa_bits), "H5Tset_fields");
  check(H5Tset_size(type.get(), 2), "H5Tset_size");
  check(H5Tset_ebias(type.get(), bias), "H5Tset_ebias");
  return type;
}

Hdf5Handle boolean_type(const Hdf5Check& check) {
  auto type = check(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "H5Tenum_create");
  for (const std::int8_t value : {0, 1})
    check(H5Tenum_insert(type.get(), value == 0 ? "FALSE" : "TRUE", &value), "H5Tenum_insert");
  return type;
}

bool is_boolean(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  std::int8_t no = -1;
  std::int8_t yes = -1;
  return H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 &&
         yes == 1;
}

TypeDescription describe_float(hid_t type) {
  const auto size = H5Tget_size(type);
  TypeDescription found{Kind::floating, std::nullopt, "float" + std::to_string(8 * size)};
  if (size == 8) found.dtype = DType::float64;
  if (size == 4) found.dtype = DType::float32;
  if (size == 2 && H5Tget_ebias(type) == 15) found.dtype = DType::float16;
  return found;
}

TypeDescription describe_integer(hid_t type) {
  const auto size = H5Tget_size(type);
  const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
  TypeDescription found{Kind::integer, std::nullopt, (has_sign ? "int" : "uint") + std::to_string(8 * size)};
  if (has_sign && size == 8) found.dtype = DType::int64;
  if (has_sign && size == 4) found.dtype = DType::int32;
  if (has_sign && size == 2) found.dtype = DType::int16;
  if (size == 1) found.dtype = has_sign ? DType::int8 : DType::uint8;
  return found;
}

}  // namespace

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto dtype : all_dtypes)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

Hdf5Handle stored_type(DType dtype, const Hdf5Check& check) {
  const auto copy = [&](hid_t type) { return check(H5Tcopy(type), H5Tclose, "H5Tcopy"); };
  switch (dtype) {
    case DType::float16:
      return half_type(10, 15, check);
    case DType::bfloat16:
      return copy(H5T_STD_U16LE);
    case DType::float32:
      return copy(H5T_IEEE_F32LE);
    case DType::float64:
      return copy(H5T_IEEE_F64LE);
    case DType::int32:
      return copy(H5T_STD_I32LE);
    case DType::int64:
      return copy(H5T_STD_I64LE);
    case DType::uint8:
      return copy(H5T_STD_U8LE);
    case DType::boolean:
      return boolean_type(check);
    case DType::int8:
      return copy(H5T_STD_I8LE);
    case DType::int16:
      return copy(H5T_STD_I16LE);
  }
  check.fail("element type", "unknown");
}

Hdf5Handle numeric_type(DType dtype, const Hdf5Check& check) {
  return dtype == DType::bfloat16 ? half_type(7, 127, check) : stored_type(dtype, check);
}

Hdf5Handle string_type(std::size_t size, const Hdf5Check& check) {
  auto type = check(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  check(H5Tset_size(type.get(), std::max<std::size_t>(size, 1)), "H5Tset_size");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "H5Tset_strpad");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

void write_dtype(hid_t array, DType dtype, const Hdf5Check& check) {
  const auto name = name_of(dtype);
  const auto type = string_type(name.size(), check);
  const auto space = check(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate");
  const auto attribute =
      check(H5Acreate2(array, dtype_attribute, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
            "write attribute dtype");
  check(H5Awrite(attribute.get(), type.get(), name.data()), "write attribute dtype");
}

TypeDescription describe_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      return describe_float(type);
    case H5T_INTEGER:
      return describe_integer(type);
    case H5T_ENUM:
      if (is_boolean(type)) return {Kind::boolean, DType::boolean, "bool"};
      return {};
    default:
      return {};
  }
}

}  // namespace farandole
