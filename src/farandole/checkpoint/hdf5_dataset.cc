#include <algorithm>
#include <limits>

#include "farandole/checkpoint/hdf5_file_impl.h"
#include "farandole/checkpoint/hdf5_types.h"

namespace farandole {
namespace {

std::vector<std::int64_t> shape_of(hid_t space, const Hdf5Check& check) {
  const int rank = check(H5Sget_simple_extent_ndims(space), "H5Sget_simple_extent_ndims");
  std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
  check(H5Sget_simple_extent_dims(space, extents.data(), nullptr), "H5Sget_simple_extent_dims");
  return {extents.begin(), extents.end()};
}

// How the elements lie in the file.
struct Layout {
  std::optional<std::uint64_t> offset;  // std::nullopt if they are in chunks, in another file, or absent.
  std::int64_t chunk_rows = 1;
};

Layout layout_of(hid_t dataset, std::size_t dimensions, const Hdf5Check& check) {
  Layout layout;
  if (const auto offset = H5Dget_offset(dataset); offset != HADDR_UNDEF) {
    layout.offset = offset;
    return layout;
  }
  H5Eclear2(H5E_DEFAULT);
  const auto creation = check(H5Dget_create_plist(dataset), H5Pclose, "H5Dget_create_plist");
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED && dimensions > 0) {
    std::vector<hsize_t> chunk(dimensions);
    check(H5Pget_chunk(creation.get(), static_cast<int>(dimensions), chunk.data()), "H5Pget_chunk");
    layout.chunk_rows = static_cast<std::int64_t>(chunk.front());
  }
  return layout;
}

// Ends a conversion to whole numbers at a value out of their range, which HDF5 would replace by
// the nearest one.
H5T_conv_ret_t note_what_does_not_fit(H5T_conv_except_t what, hid_t, hid_t to, void*, void*, void* fits) {
  const bool outside = what == H5T_CONV_EXCEPT_RANGE_HI || what == H5T_CONV_EXCEPT_RANGE_LOW;
  if (!outside || H5Tget_class(to) != H5T_INTEGER) return H5T_CONV_UNHANDLED;
  *static_cast<bool*>(fits) = false;
  return H5T_CONV_ABORT;
}

}  // namespace

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  const Hdf5Lock lock;
  const auto& check = impl_->check;
  const auto open = [&] { return H5Dopen2(impl_->file.get(), path.c_str(), H5P_DEFAULT); };
  auto opened = open();
  if (opened < 0) {  // Why is asked only then, because it takes as long as to open.
    if (!contains(path)) throw UserError(check.file() + " has no data set " + path);
    opened = open();
  }
  return Hdf5Dataset(describe_dataset(impl_, check(opened, H5Dclose, "open data set " + path), path));
}

std::shared_ptr<const Hdf5Dataset::Impl> describe_dataset(std::shared_ptr<const Hdf5File::Impl> file,
                                                          Hdf5Handle dataset, const std::string& path) {
  const auto& check = file->check;
  auto impl = std::make_shared<Hdf5Dataset::Impl>();
  impl->path = path;
  impl->dataset = std::move(dataset);
  const hid_t id = impl->dataset.get();
  const auto space = check(H5Dget_space(id), H5Sclose, "H5Dget_space");
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) check.fail("data set " + path, "it has no values");
  impl->shape = shape_of(space.get(), check);
  const auto layout = layout_of(id, impl->shape.size(), check);
  impl->chunk_rows = layout.chunk_rows;
  const auto type = check(H5Dget_type(id), H5Tclose, "H5Dget_type");
  auto description = describe_type(type.get());
  if (description.name == "uint16" && file->string_attribute(id, dtype_attribute) == name_of(DType::bfloat16))
    description = {Hdf5Dataset::Kind::floating, DType::bfloat16, "bfloat16"};
  impl->kind = description.kind;
  impl->dtype = description.dtype;
  impl->type_name = description.name;
  if (impl->dtype && check(H5Tequal(type.get(), stored_type(*impl->dtype, check).get()), "H5Tequal") > 0)
    impl->offset = layout.offset;
  // Checked before a caller allocates so much memory.
  if (impl->offset &&
      *impl->offset + impl->elements(impl->rows()) * size_of(*impl->dtype) > file->raw.file_bytes())
    check.fail("data set " + path,
               "the file ends before its data, at byte " + std::to_string(file->raw.file_bytes()));
  impl->file = std::move(file);
  return impl;
}

std::size_t Hdf5Dataset::Impl::elements(std::int64_t rows) const {
  std::size_t product = static_cast<std::size_t>(rows);
  bool too_many = rows < 0;
  for (std::size_t i = 1; i < shape.size(); ++i)
    too_many |= shape[i] < 0 || __builtin_mul_overflow(product, static_cast<std::size_t>(shape[i]), &product);
  if (too_many || product > std::numeric_limits<std::size_t>::max() / 16)
    throw CorruptInput(where() + " has an impossible shape");
  return product;
}

Hdf5Dataset::Hdf5Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
const std::string& Hdf5Dataset::path() const {
  return impl_->path;
}
const std::vector<std::int64_t>& Hdf5Dataset::shape() const {
  return impl_->shape;
}
std::int64_t Hdf5Dataset::rows() const {
  return impl_->shape.empty() ? 1 : impl_->shape.front();
}
std::size_t Hdf5Dataset::row_bytes(DType dtype) const {
  return impl_->elements(1) * size_of(dtype);
}
std::int64_t Hdf5Dataset::chunk_rows() const {
  return impl_->chunk_rows;
}
Hdf5Dataset::Kind Hdf5Dataset::kind() const {
  return impl_->kind;
}
std::optional<DType> Hdf5Dataset::dtype() const {
  return impl_->dtype;
}
std::optional<std::uint64_t> Hdf5Dataset::offset() const {
  return impl_->offset;
}
std::string Hdf5Dataset::type_name() const {
  return impl_->type_name;
}
std::string Hdf5Dataset::file() const {
  return impl_->file->check.file();
}

void Hdf5Dataset::read(std::span<std::byte> out, const SeePiece& see) const {
  if (!impl_->dtype)
    throw UserError(impl_->where() + " has type " + impl_->type_name + ", which cannot be read as stored");
  const auto bytes = impl_->elements(rows()) * size_of(*impl_->dtype);
  if (out.size() != bytes)
    throw Error(impl_->where() + " needs " + std::to_string(bytes) + " bytes of memory");
  if (bytes == 0) return;
  if (!impl_->offset) read_rows(0, rows(), *impl_->dtype, out);
  for (std::size_t done = 0; done < bytes;) {
    const auto piece = out.subspan(done, std::min(piece_bytes, bytes - done));
    if (impl_->offset && !impl_->file->raw.read(*impl_->offset + done, piece))
      throw CorruptInput(impl_->where() + ": the file ends within its data, at byte " +
                         std::to_string(impl_->file->raw.file_bytes()));
    if (see) see(piece);
    done += piece.size();
  }
}

void Hdf5Dataset::read_rows(std::int64_t first, std::int64_t count, DType dtype,
                            std::span<std::byte> out) const {
  const bool same = impl_->dtype == dtype;
  if (impl_->kind == Kind::other || (!same && (dtype == DType::boolean || impl_->dtype == DType::bfloat16)))
    throw UserError(impl_->where() + " has type " + impl_->type_name + ", which cannot be read as " +
                    std::string(name_of(dtype)));
  if (first < 0 || count < 0 || count > rows() || first > rows() - count)
    throw UserError(impl_->where() + " has " + std::to_string(rows()) + " rows; it cannot give " +
                    std::to_string(count) + " rows from row " + std::to_string(first) + " on");
  const auto elements = impl_->elements(count);
  if (out.size() != elements * size_of(dtype))
    throw Error(impl_->where() + " needs " + std::to_string(elements * size_of(dtype)) + " bytes of memory");
  if (elements == 0) return;
  // Many rows are read without HDF5's lock, and few rows without the time that its selections take.
  if (same && impl_->offset) {
    if (impl_->file->raw.read(*impl_->offset + static_cast<std::uint64_t>(first) * row_bytes(dtype), out))
      return;
    throw CorruptInput(impl_->where() + ": the file ends within its data, at byte " +
                       std::to_string(impl_->file->raw.file_bytes()));
  }

  const Hdf5Lock lock;
  const auto& check = impl_->file->check;
  const auto space = check(H5Dget_space(impl_->dataset.get()), H5Sclose, "H5Dget_space");
  // The memory has the same dimensions as the rows in the file: otherwise HDF5 finds the place of each
  // element of a chunk alone.
  std::vector<hsize_t> extent(impl_->shape.begin(), impl_->shape.end());
  if (!extent.empty()) {
    std::vector<hsize_t> start(extent.size(), 0);
    start[0] = static_cast<hsize_t>(first);
    extent[0] = static_cast<hsize_t>(count);
    check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr),
          "H5Sselect_hyperslab");
  }
  const auto memory = check(H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
                            H5Sclose, "H5Screate_simple");
  const auto type = same ? stored_type(dtype, check) : numeric_type(dtype, check);
  const auto transfer = check(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "H5Pcreate");
  bool fits = true;
  check(H5Pset_type_conv_cb(transfer.get(), note_what_does_not_fit, &fits), "H5Pset_type_conv_cb");
  const auto done =
      H5Dread(impl_->dataset.get(), type.get(), memory.get(), space.get(), transfer.get(), out.data());
  if (!fits)
    throw CorruptInput(impl_->where() + " has a value that " + std::string(name_of(dtype)) + " cannot hold");
  check(done, "read data set " + impl_->path);
}

}  // namespace farandole
