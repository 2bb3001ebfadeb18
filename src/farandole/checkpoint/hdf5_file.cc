#include "farandole/checkpoint/hdf5_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_file_impl.h"
#include "farandole/checkpoint/hdf5_types.h"

namespace farandole {
namespace {

// Of large arrays, so that whole pages are written to the disk at once.
constexpr hsize_t alignment_bytes = 4096;
constexpr hsize_t large_bytes = 65536;
constexpr std::size_t writeback_bytes = std::size_t{8} << 20;  // a multiple of piece_bytes

Hdf5Handle access_properties(const Hdf5Check& check) {
  auto access = check(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  // The format of 1.8 has checksums in all metadata. Later formats add nothing that is used here.
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), "H5Pset_libver_bounds");
  check(H5Pset_alignment(access.get(), large_bytes, alignment_bytes), "H5Pset_alignment");
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

using SeeDataset = std::function<void(const std::string& path, Hdf5Handle)>;

void visit_group(hid_t group, const std::string& prefix, const Hdf5Check& check, int depth,
                 const SeeDataset& see) {
  if (depth > 64) check.fail("group " + prefix, "groups are nested too deep");
  std::vector<std::string> names;
  const auto append = [](hid_t, const char* name, const auto*, void* list) -> herr_t {
    static_cast<std::vector<std::string>*>(list)->emplace_back(name);
    return 0;
  };
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, append, &names),
        "list group " + prefix + "/");
  for (const auto& name : names) {
    const auto path = prefix + "/" + name;
    auto object = check(H5Oopen(group, name.c_str(), H5P_DEFAULT), H5Oclose, "open " + path);
    const auto type = H5Iget_type(object.get());
    if (type == H5I_GROUP) visit_group(object.get(), path, check, depth + 1, see);
    if (type == H5I_DATASET) see(path, std::move(object));
  }
}

}  // namespace

Hdf5Handle Hdf5File::Impl::open_object(const std::string& path) const {
  return check(H5Oopen(file.get(), path.c_str(), H5P_DEFAULT), H5Oclose, "open " + path);
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

void Hdf5File::Impl::copy_image(std::uint64_t file_bytes) {
  const std::span<const std::byte> all = *image;
  std::ranges::sort(on_disk);
  on_disk.emplace_back(all.size(), all.size());
  std::uint64_t begin = 0;
  for (const auto& [array_begin, array_end] : on_disk) {
    const auto end = std::min<std::uint64_t>(array_begin, all.size());
    if (begin < end) raw.write(begin, all.subspan(begin, end - begin));
    begin = array_end;
  }
  raw.resize(std::max<std::uint64_t>(file_bytes, all.size()));
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, std::size_t metadata_bytes) {
  const Hdf5Lock lock;
  const Hdf5Check check(path.string(), ExitCode::failure);
  RawData raw(path.string(), O_RDWR | O_CREAT | O_TRUNC);
  auto image = std::make_unique<std::vector<std::byte>>();
  const auto access = access_properties(check);
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
  hsize_t file_bytes = 0;
  if (impl_->image) impl_->check(H5Fget_filesize(impl_->file.get(), &file_bytes), "H5Fget_filesize");
  impl_->check(impl_->file.close(), "close");
  if (impl_->image) impl_->copy_image(file_bytes);
  impl_->image.reset();
}

std::vector<std::string> Hdf5File::list() const {
  const Hdf5Lock lock;
  std::vector<std::string> found;
  visit_group(impl_->open_object("/").get(), "", impl_->check, 0,
              [&](const std::string& path, const Hdf5Handle&) { found.push_back(path); });
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<Hdf5Dataset> Hdf5File::datasets() const {
  const Hdf5Lock lock;
  std::vector<Hdf5Dataset> found;
  visit_group(impl_->open_object("/").get(), "", impl_->check, 0,
              [&](const std::string& path, Hdf5Handle dataset) {
                found.push_back(Hdf5Dataset(describe_dataset(impl_, std::move(dataset), path)));
              });
  std::ranges::sort(found, {}, &Hdf5Dataset::path);
  return found;
}

bool Hdf5File::contains(const std::string& path) const {
  const Hdf5Lock lock;
  // HDF5 requires that each group of the path is checked before the last name.
  for (auto end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const auto part = path.substr(0, end);
    if (part.size() > 1 &&
        impl_->check(H5Lexists(impl_->file.get(), part.c_str(), H5P_DEFAULT), "look up " + part) == 0)
      return false;
    if (end == path.npos) return true;
  }
}

}  // namespace farandole
