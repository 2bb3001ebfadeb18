#include "farandole/checkpoint/hdf5_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_handle.h"
#include "farandole/checkpoint/hdf5_links.h"
#include "farandole/checkpoint/hdf5_types.h"
#include "farandole/checkpoint/snapshot.h"

namespace farandole {

// A new file is written in two parts. HDF5's core driver writes the metadata to an image in memory. Arrays
// are written directly to the disk. close() copies the image into the gaps. So arrays need no lock and no
// memory, and HDF5 never meets a full disk. This matters because HDF5 1.10 cannot close a file on a full disk
// and crashes when the process ends.
struct Hdf5File::Impl {
  Hdf5Check check;
  RawData raw;
  // The begin of a file that is being written, up to its last metadata. The arrays in it are holes.
  std::unique_ptr<std::vector<std::byte>> image;
  Hdf5Handle file;  // the image, or the file that is read
  // Ranges [begin, end) of the arrays that `raw` contains.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> on_disk;

  void write(std::uint64_t offset, std::span<const std::byte> bytes, const SeePiece& see);
  void copy_image();

  Hdf5Handle open_object(const std::string& path) const;
  // The value of a string attribute; std::nullopt if it does not exist or has another type.
  std::optional<std::string> string_attribute(hid_t object, const std::string& name) const;
};

struct Hdf5Dataset::Impl {
  std::shared_ptr<const Hdf5File::Impl> file;
  std::string path;
  Hdf5Handle dataset;
  std::vector<std::int64_t> shape;
  std::int64_t chunk_rows = 1;
  Kind kind = Kind::other;
  std::optional<DType> dtype;
  std::string type_name;
  // Offset of the bytes in the file; set only if memory and file have the same layout.
  std::optional<std::uint64_t> offset;

  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  std::string where() const { return file->check.file() + ": data set " + path; }
  // The number of elements of `rows` rows.
  // Throws: CorruptInput if they cannot fit into any memory.
  std::size_t elements(std::int64_t rows) const;
};

namespace {

constexpr std::size_t piece_bytes = Digester::piece_bytes;  // For SeePiece.
// Of large arrays, so that whole pages are written to the disk at once.
constexpr hsize_t alignment_bytes = 4096;
constexpr hsize_t large_bytes = 65536;
constexpr std::size_t writeback_bytes = std::size_t{8} << 20;  // a multiple of piece_bytes

Hdf5Handle access_properties(const Hdf5Check& check) {
  auto access = check(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "H5Pset_fclose_degree");
  // Parallel file systems are often mounted without flock. Files are published by rename, so
  // no lock is needed.
  check(H5Pset_file_locking(access.get(), false, true), "H5Pset_file_locking");
  return access;
}

// Lets HDF5 keep a new file in `image` instead of on a disk. Its first `metadata_bytes` are for metadata. The
// image ends with the last metadata, so arrays behind it take no memory.
void keep_in(std::vector<std::byte>& image, std::size_t metadata_bytes, hid_t access,
             const Hdf5Check& check) {
  const auto resize = [](void*, std::size_t bytes, H5FD_file_image_op_t, void* own) -> void* {
    auto& all = *static_cast<std::vector<std::byte>*>(own);
    try {
      all.resize(bytes);
    } catch (const std::exception&) {  // HDF5 reports that there is no memory.
      return nullptr;
    }
    return all.data();
  };
  H5FD_file_image_callbacks_t memory{};
  memory.image_realloc = resize;
  memory.image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; };
  memory.udata_copy = [](void* own) { return own; };
  memory.udata_free = [](void*) -> herr_t { return 0; };
  memory.udata = &image;
  check(H5Pset_fapl_core(access, /*increment=*/1, /*backing_store=*/false), "H5Pset_fapl_core");
  check(H5Pset_file_image_callbacks(access, &memory), "H5Pset_file_image_callbacks");
  check(H5Pset_meta_block_size(access, metadata_bytes), "H5Pset_meta_block_size");
}

void check_path(const std::string& path, const Hdf5Check& check) {
  std::string_view rest = path;
  bool good = rest.size() > 1 && rest.find('\0') == rest.npos;
  while (good && !rest.empty()) {
    good = rest.front() == '/';
    rest.remove_prefix(1);
    const auto name = rest.substr(0, rest.find('/'));
    good = good && !name.empty() && name != "." && name != "..";
    rest.remove_prefix(name.size());
  }
  if (!good)
    check.fail("array '" + path + "'", "a path must be /group/name, and a name must not be empty, . or ..");
}

Hdf5Handle space_of(std::span<const std::int64_t> shape, const Hdf5Check& check) {
  if (shape.empty()) return check(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate");
  const std::vector<hsize_t> dimensions(shape.begin(), shape.end());
  return check(H5Screate_simple(static_cast<int>(shape.size()), dimensions.data(), nullptr), H5Sclose,
               "H5Screate_simple");
}

void write_attribute(hid_t object, const std::string& name, hid_t type, const void* value,
                     const Hdf5Check& check) {
  if (check(H5Aexists(object, name.c_str()), "H5Aexists") > 0)
    check(H5Adelete(object, name.c_str()), "H5Adelete");
  const auto space = space_of({}, check);
  const auto attribute = check(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                               H5Aclose, "write attribute " + name);
  check(H5Awrite(attribute.get(), type, value), "write attribute " + name);
}

void write_string_attribute(hid_t object, const std::string& name, std::string_view value,
                            const Hdf5Check& check) {
  const auto type = string_type(value.size(), check);
  const std::string bytes(value.empty() ? std::string_view("\0", 1) : value);
  write_attribute(object, name, type.get(), bytes.data(), check);
}

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

// The file may be foreign or damaged and may contain anything in place of an attribute.
// The attribute if it exists, has one value and has this class; otherwise empty.
Hdf5Handle open_attribute(hid_t object, const std::string& name, H5T_class_t wanted, const Hdf5Check& check) {
  if (check(H5Aexists(object, name.c_str()), "look up attribute " + name) == 0) return {};
  auto attribute = check(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "open attribute " + name);
  const auto space = check(H5Aget_space(attribute.get()), H5Sclose, "H5Aget_space");
  const auto type = check(H5Aget_type(attribute.get()), H5Tclose, "H5Aget_type");
  if (H5Tget_class(type.get()) != wanted || H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  return attribute;
}

template <typename Value>
std::optional<Value> read_number(const Hdf5File::Impl& impl, const std::string& object,
                                 const std::string& name, H5T_class_t wanted, hid_t type) {
  const auto holder = impl.open_object(object);
  const auto attribute = open_attribute(holder.get(), name, wanted, impl.check);
  if (attribute.get() < 0) return std::nullopt;
  Value value{};
  impl.check(H5Aread(attribute.get(), type, &value), "read attribute " + name);
  return value;
}

// Throws: CorruptInput if the file is damaged.
std::shared_ptr<const Hdf5Dataset::Impl> describe_dataset(std::shared_ptr<const Hdf5File::Impl> file,
                                                          Hdf5Handle dataset, const std::string& path) {
  const auto& check = file->check;
  auto impl = std::make_shared<Hdf5Dataset::Impl>();
  impl->path = path;
  impl->dataset = std::move(dataset);
  const hid_t id = impl->dataset.get();
  const auto space = check(H5Dget_space(id), H5Sclose, "H5Dget_space");
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

}  // namespace

Hdf5Handle Hdf5File::Impl::open_object(const std::string& path) const {
  return check(open_within(file.get(), path), H5Oclose, "open " + path);
}

void Hdf5File::Impl::write(std::uint64_t offset, std::span<const std::byte> bytes, const SeePiece& see) {
  if (bytes.empty()) return;
  on_disk.emplace_back(offset, offset + bytes.size());
  for (std::size_t done = 0; done < bytes.size();) {
    const auto piece = bytes.subspan(done, std::min(piece_bytes, bytes.size() - done));
    if (see) see(piece);
    raw.write(offset + done, piece);
    done += piece.size();
    if (bytes.size() >= large_bytes && (done % writeback_bytes == 0 || done == bytes.size())) {
      const auto begin = (done - 1) / writeback_bytes * writeback_bytes;
      raw.start_writeback(offset + begin, done - begin);
    }
  }
}

void Hdf5File::Impl::copy_image() {
  const std::span<const std::byte> all = *image;
  std::ranges::sort(on_disk);
  on_disk.emplace_back(all.size(), all.size());
  std::uint64_t begin = 0;
  for (const auto& [array_begin, array_end] : on_disk) {
    const auto end = std::min<std::uint64_t>(array_begin, all.size());
    if (begin < end) raw.write(begin, all.subspan(begin, end - begin));
    begin = array_end;
  }
  // The address of the end of the file, in a superblock of version 2 (HDF5 File Format Specification, II.A).
  constexpr std::size_t version_at = 8, end_at = 28;
  std::uint64_t file_bytes = 0;
  if (all.size() < end_at + sizeof file_bytes || all[version_at] != std::byte{2})
    check.fail("close", "HDF5 wrote another version of its superblock");
  std::memcpy(&file_bytes, all.data() + end_at, sizeof file_bytes);
  raw.resize(file_bytes);
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, std::size_t metadata_bytes) {
  const Hdf5Lock lock;
  const Hdf5Check check(path.string(), ExitCode::failure);
  RawData raw(path.string(), O_RDWR | O_CREAT | O_TRUNC);
  auto image = std::make_unique<std::vector<std::byte>>();
  const auto access = access_properties(check);
  // The format of 1.8 has checksums in all metadata. Later formats add nothing that is used here.
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), "H5Pset_libver_bounds");
  check(H5Pset_alignment(access.get(), large_bytes, alignment_bytes), "H5Pset_alignment");
  keep_in(*image, metadata_bytes, access.get(), check);
  auto file = check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, "create");
  return Hdf5File(
      std::shared_ptr<Impl>(new Impl{check, std::move(raw), std::move(image), std::move(file), {}}));
}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    throw UserError("open " + path.string() + ": it is a folder");
  if (open_regular_file(path).get() < 0)
    throw UserError("open " + path.string() + ": " + std::strerror(errno));
  const Hdf5Lock lock;
  const Hdf5Check check(path.string(), ExitCode::corrupt_input);
  RawData raw(path.string(), O_RDONLY);
  const auto access = access_properties(check);
  auto file =
      check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "it is not a readable HDF5 file");
  return Hdf5File(std::shared_ptr<Impl>(new Impl{check, std::move(raw), nullptr, std::move(file), {}}));
}

Hdf5File::Hdf5File(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

void Hdf5File::write_array(const std::string& path, DType dtype, std::span<const std::int64_t> shape,
                           std::span<const std::byte> bytes, const SeePiece& see) {
  const auto& check = impl_->check;
  check_path(path, check);
  std::size_t expected = size_of(dtype);
  for (const auto extent : shape)
    if (extent < 0 || __builtin_mul_overflow(expected, static_cast<std::size_t>(extent), &expected))
      check.fail("array " + path, "a shape cannot contain " + std::to_string(extent));
  if (expected != bytes.size())
    check.fail("array " + path, "its shape needs " + std::to_string(expected) + " bytes, but it has " +
                                    std::to_string(bytes.size()));
  haddr_t offset = HADDR_UNDEF;
  {
    const Hdf5Lock lock;
    const auto type = stored_type(dtype, check);
    const auto space = space_of(shape, check);
    const auto links = check(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "H5Pcreate");
    check(H5Pset_create_intermediate_group(links.get(), 1), "H5Pset_create_intermediate_group");
    check(H5Pset_char_encoding(links.get(), H5T_CSET_UTF8), "H5Pset_char_encoding");
    const auto creation = check(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    // The space in the file is allocated now, and only the write below fills it.
    check(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    const auto dataset = check(H5Dcreate2(impl_->file.get(), path.c_str(), type.get(), space.get(),
                                          links.get(), creation.get(), H5P_DEFAULT),
                               H5Dclose, "create data set " + path);
    write_dtype(dataset.get(), dtype, check);
    offset = H5Dget_offset(dataset.get());
    if (offset == HADDR_UNDEF && !bytes.empty())
      check.fail("create data set " + path, "HDF5 allocated no space in the file");
  }
  impl_->write(offset, bytes, see);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, std::int64_t value) {
  const Hdf5Lock lock;
  write_attribute(impl_->open_object(object).get(), name, H5T_STD_I64LE, &value, impl_->check);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, double value) {
  const Hdf5Lock lock;
  write_attribute(impl_->open_object(object).get(), name, H5T_IEEE_F64LE, &value, impl_->check);
}

void Hdf5File::set_attribute(const std::string& object, const std::string& name, std::string_view value) {
  const Hdf5Lock lock;
  write_string_attribute(impl_->open_object(object).get(), name, value, impl_->check);
}

void Hdf5File::close() {
  const Hdf5Lock lock;
  impl_->check(impl_->file.close(), "close");
  if (impl_->image) impl_->copy_image();
  impl_->image.reset();
}

std::vector<std::string> Hdf5File::list() const {
  std::vector<std::string> found;
  for (const auto& dataset : datasets()) found.push_back(dataset.path());
  return found;
}

std::vector<Hdf5Dataset> Hdf5File::datasets() const {
  std::vector<Hdf5Problem> problems;
  auto found = datasets(problems);
  if (!problems.empty()) impl_->check.fail(problems.front().path, problems.front().reason);
  return found;
}

std::vector<Hdf5Dataset> Hdf5File::datasets(std::vector<Hdf5Problem>& problems) const {
  const Hdf5Lock lock;
  std::vector<Hdf5Dataset> found;
  auto objects = find_objects(impl_->file.get(), impl_->check);
  problems = std::move(objects.problems);
  for (auto& [path, dataset] : objects.datasets) {
    try {
      if (auto problem = problem_of(dataset.get(), path, impl_->check))
        problems.push_back(*std::move(problem));
      else
        found.push_back(Hdf5Dataset(describe_dataset(impl_, std::move(dataset), path)));
    } catch (const Error& error) {
      problems.push_back({path, error.what(), true});
    }
  }
  std::ranges::sort(found, {}, &Hdf5Dataset::path);
  std::ranges::sort(problems, {}, &Hdf5Problem::path);
  return found;
}

bool Hdf5File::contains(const std::string& path) const {
  const Hdf5Lock lock;
  const auto access = links_within_the_file(impl_->check);
  // HDF5 requires that each group of the path is checked before the last name.
  for (auto end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const auto part = path.substr(0, end);
    if (part.size() > 1 &&
        impl_->check(H5Lexists(impl_->file.get(), part.c_str(), access.get()), "look up " + part) == 0)
      return false;
    if (end == path.npos) return true;
  }
}

Hdf5Dataset Hdf5File::dataset(const std::string& path) const {
  const Hdf5Lock lock;
  const auto& check = impl_->check;
  auto opened = open_within(impl_->file.get(), path);
  if (opened < 0) {  // Why is asked only then, because it takes as long as to open.
    if (!contains(path)) throw UserError(check.file() + " has no data set " + path);
    opened = open_within(impl_->file.get(), path);
  }
  auto dataset = check(opened, H5Oclose, "open data set " + path);
  if (H5Iget_type(dataset.get()) != H5I_DATASET) check.fail(path, "it is no data set");
  if (const auto problem = problem_of(dataset.get(), path, check))
    check.fail("data set " + path, problem->reason);
  return Hdf5Dataset(describe_dataset(impl_, std::move(dataset), path));
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

void Hdf5Dataset::read_texts(std::int64_t first, std::int64_t count,
                             const std::function<void(std::string_view)>& use) const {
  const Hdf5Lock lock;
  const auto& check = impl_->file->check;
  const auto stored = check(H5Dget_type(impl_->dataset.get()), H5Tclose, "H5Dget_type");
  if (H5Tget_class(stored.get()) != H5T_STRING || impl_->shape.size() != 1)
    throw UserError(impl_->where() + " does not have one text for each row");
  const bool variable = check(H5Tis_variable_str(stored.get()), "H5Tis_variable_str") > 0;
  const auto space = check(H5Dget_space(impl_->dataset.get()), H5Sclose, "H5Dget_space");
  const hsize_t start = static_cast<hsize_t>(first), extent = static_cast<hsize_t>(count);
  check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr), "select rows");
  const auto memory = check(H5Screate_simple(1, &extent, nullptr), H5Sclose, "H5Screate_simple");
  const auto read = [&](void* to) {
    check(H5Dread(impl_->dataset.get(), stored.get(), memory.get(), space.get(), H5P_DEFAULT, to),
          "read texts of data set " + impl_->path);
  };
  if (variable) {
    std::vector<char*> texts(extent);
    read(texts.data());
    for (const char* text : texts) use(text == nullptr ? "" : text);
    check(H5Dvlen_reclaim(stored.get(), memory.get(), H5P_DEFAULT, texts.data()), "H5Dvlen_reclaim");
    return;
  }
  const auto bytes = H5Tget_size(stored.get());
  std::string texts(bytes * extent, '\0');
  read(texts.data());
  const bool padded = H5Tget_strpad(stored.get()) == H5T_STR_SPACEPAD;
  for (hsize_t i = 0; i < extent; ++i) {
    auto text = std::string_view(texts).substr(i * bytes, bytes);
    text = text.substr(0, text.find('\0'));
    if (padded) text = text.substr(0, text.find_last_not_of(' ') + 1);
    use(text);
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

std::optional<std::string> Hdf5File::Impl::string_attribute(hid_t object, const std::string& name) const {
  const auto attribute = open_attribute(object, name, H5T_STRING, check);
  if (attribute.get() < 0) return std::nullopt;
  const auto type = check(H5Aget_type(attribute.get()), H5Tclose, "H5Aget_type");
  if (check(H5Tis_variable_str(type.get()), "H5Tis_variable_str") > 0) {
    const auto space = check(H5Aget_space(attribute.get()), H5Sclose, "H5Aget_space");
    char* text = nullptr;
    check(H5Aread(attribute.get(), type.get(), &text), "read attribute " + name);
    const std::string copy = text == nullptr ? "" : text;
    check(H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, &text), "H5Dvlen_reclaim");
    return copy;
  }
  std::string value(H5Tget_size(type.get()), '\0');
  check(H5Aread(attribute.get(), type.get(), value.data()), "read attribute " + name);
  value.resize(value.find_last_not_of('\0') + 1);
  return value;
}

std::optional<std::int64_t> Hdf5File::integer_attribute(const std::string& object,
                                                        const std::string& name) const {
  const Hdf5Lock lock;
  return read_number<std::int64_t>(*impl_, object, name, H5T_INTEGER, H5T_NATIVE_INT64);
}

std::optional<double> Hdf5File::double_attribute(const std::string& object, const std::string& name) const {
  const Hdf5Lock lock;
  return read_number<double>(*impl_, object, name, H5T_FLOAT, H5T_NATIVE_DOUBLE);
}

std::optional<std::string> Hdf5File::string_attribute(const std::string& object,
                                                      const std::string& name) const {
  const Hdf5Lock lock;
  return impl_->string_attribute(impl_->open_object(object).get(), name);
}

std::optional<std::string> Hdf5Dataset::string_attribute(const std::string& name) const {
  const Hdf5Lock lock;
  return impl_->file->string_attribute(impl_->dataset.get(), name);
}

}  // namespace farandole
