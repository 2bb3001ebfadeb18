// How Farandole's element types are spelled in HDF5. Call with the Hdf5Lock held.
#pragma once

#include <optional>
#include <string>

#include "farandole/base/dtype.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/hdf5_handle.h"

namespace farandole {

// The attribute of an array that holds PyTorch's name of its type.
inline constexpr const char* dtype_attribute = "dtype";

std::optional<DType> dtype_of(std::string_view name);

// As stored: little-endian; float16 as IEEE half, bfloat16 as uint16, bool as h5py's enumeration over int8.
Hdf5Handle stored_type(DType dtype, const Hdf5Check& check);

// What numbers are converted to in memory; other than as stored only for bfloat16, then a 16-bit float.
Hdf5Handle numeric_type(DType dtype, const Hdf5Check& check);

// What is known from a stored type alone; bfloat16 looks like uint16.
struct TypeDescription {
  Hdf5Dataset::Kind kind = Hdf5Dataset::Kind::other;
  std::optional<DType> dtype;
  std::string name = "other";
};
TypeDescription describe_type(hid_t type);

}  // namespace farandole
