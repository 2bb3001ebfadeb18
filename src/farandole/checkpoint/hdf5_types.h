// Converts between Farandole's element types and HDF5's.
// Thread safety: none; use from one thread at a time. The caller must hold the Hdf5Lock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "farandole/base/dtype.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/hdf5_handle.h"

namespace farandole {

// This attribute of an array holds PyTorch's name of the array's type.
inline constexpr const char* dtype_attribute = "dtype";

std::optional<DType> dtype_of(std::string_view name);

// The type in the file: little-endian; float16 is an IEEE half, bfloat16 is uint16, bool is
// h5py's enumeration over int8.
Hdf5Handle stored_type(DType dtype, const Hdf5Check& check);

// The type in memory to which numbers are converted. It differs from the stored type only for bfloat16: it
// is a 16-bit float.
Hdf5Handle numeric_type(DType dtype, const Hdf5Check& check);

// A text of up to `size` bytes in UTF-8.
Hdf5Handle string_type(std::size_t size, const Hdf5Check& check);

// Writes the attribute `dtype`, without which bfloat16 would be read as uint16.
void write_dtype(hid_t array, DType dtype, const Hdf5Check& check);

// The information that a stored type alone gives. bfloat16 looks like uint16.
struct TypeDescription {
  Hdf5Dataset::Kind kind = Hdf5Dataset::Kind::other;
  std::optional<DType> dtype;
  std::string name = "other";
};
TypeDescription describe_type(hid_t type);

}  // namespace farandole
