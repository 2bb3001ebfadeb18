// Reads attributes. This is separate from Hdf5File's other members because a foreign or damaged file
// may contain anything here.
#include "farandole/checkpoint/hdf5_file_impl.h"

namespace farandole {
namespace {

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

}  // namespace

std::optional<std::string> Hdf5File::Impl::string_attribute(hid_t object, const std::string& name) const {
  const auto attribute = open_attribute(object, name, H5T_STRING, check);
  if (attribute.get() < 0) return std::nullopt;
  const auto type = check(H5Aget_type(attribute.get()), H5Tclose, "H5Aget_type");
  if (check(H5Tis_variable_str(type.get()), "H5Tis_variable_str") > 0) return std::nullopt;
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
