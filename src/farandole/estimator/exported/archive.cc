#include "farandole/estimator/exported/archive.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <limits>
#include <set>

#include "farandole/base/error.h"
#include "farandole/estimator/exported/schema.h"

namespace farandole {
namespace {

// Returns the number of elements that a view needs of its storage. Throws: std::runtime_error if
// there is none.
std::int64_t extent_of(const ExportedTensorMeta& meta, const std::string& name) {
  const auto check = [&](bool good) {
    if (!good) throw std::runtime_error(fmt::format("{} has wrong sizes", name));
  };
  check(meta.sizes.size() == meta.strides.size() && meta.sizes.size() <= 64 && !meta.offset.is_dynamic);
  std::int64_t last = meta.offset.value, elements = 1;
  check(last >= 0);
  for (std::size_t i = 0; i < meta.sizes.size(); ++i) {
    const auto &size = meta.sizes[i], &stride = meta.strides[i];
    check(!size.is_dynamic && !stride.is_dynamic && size.value >= 0 && stride.value >= 0);
    check(!__builtin_mul_overflow(elements, size.value, &elements));
    std::int64_t distance = 0;
    check(!__builtin_mul_overflow(std::max<std::int64_t>(size.value - 1, 0), stride.value, &distance) &&
          !__builtin_add_overflow(last, distance, &last));
  }
  // A view may repeat elements, but not without a limit.
  constexpr std::int64_t most_repeated = std::int64_t{1} << 28;
  check(last < std::numeric_limits<std::int64_t>::max() / 64);
  check(elements <= std::max(last + 1, most_repeated));
  return elements == 0 ? 0 : last + 1;
}

std::vector<std::int64_t> values_of_extents(const std::vector<ExportedExtent>& extents) {
  std::vector<std::int64_t> values;
  for (const auto& extent : extents) values.push_back(extent.value);
  return values;
}

Json extents_json(at::IntArrayRef values) {
  Json json = Json::array();
  for (const auto value : values) json.push_back({{"as_int", value}});
  return json;
}

}  // namespace

const ExportedTensors::Item* ExportedTensors::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(items, name, {}, &Item::name);
  return found == items.end() || found->name != name ? nullptr : &*found;
}

ExportedArchive::ExportedArchive(const std::filesystem::path& file)
    : file_bytes_(std::filesystem::file_size(file)), reader_(file.string()) {
  if (reader_.hasRecord("byteorder") && record("byteorder") != "little")
    throw UserError(
        "it was written on a big-endian machine; load it with torch.export.load and save it with torch.export.save on a "
        "little-endian one");
  if (const auto version = record("archive_version"); version != "0")
    throw UserError(
        fmt::format("it is an archive of version {}, and this program reads version 0; export the model with "
                    "PyTorch 2.11",
                    version.substr(0, 20)));
  constexpr std::string_view folder = "models/", ending = ".json";
  for (const auto& name : reader_.getAllRecords())
    if (name.starts_with(folder) && name.ends_with(ending) && name.size() > folder.size() + ending.size())
      programs_.push_back(name.substr(folder.size(), name.size() - folder.size() - ending.size()));
  std::ranges::sort(programs_);
  if (programs_.empty()) throw std::runtime_error("it has no programs");
}

// A record is not compressed, and so is not larger than the file.
std::pair<at::DataPtr, std::size_t> ExportedArchive::bytes_of_record(const std::string& name) {
  if (!reader_.hasRecord(name)) throw std::runtime_error(fmt::format("it has no {}", name));
  if (reader_.getRecordSize(name) > file_bytes_)
    throw std::runtime_error(fmt::format("{} is compressed or has a wrong size", name));
  auto [data, size] = reader_.getRecord(name);
  return {std::move(data), size};
}

std::string ExportedArchive::record(const std::string& name) {
  const auto [data, size] = bytes_of_record(name);
  return {static_cast<const char*>(data.get()), size};
}

ExportedTensors ExportedArchive::tensors(const std::string& folder, const std::string& config,
                                         at::Device device) {
  ExportedTensors tensors;
  std::map<std::string, c10::Storage> storages;
  const auto json = parse_sorted_json(record(folder + config));
  for (const auto& [name, payload] : json.at("config").items()) {
    if (payload.at("use_pickle").get<bool>()) {
      if (tensors.pickled.empty()) tensors.pickled = name;
      continue;
    }
    const auto meta = exported_tensor_meta(payload.at("tensor_meta"));
    const auto options = at::TensorOptions().dtype(meta.dtype).device(device);
    const auto path = payload.at("path_name").get<std::string>();
    auto storage = storages.find(path);
    if (storage == storages.end()) {
      auto [data, size] = bytes_of_record(folder + path);
      c10::Storage bytes(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, false);
      if (!device.is_cpu())
        bytes = at::empty({0}, at::kByte)
                    .set_(bytes, 0, {static_cast<std::int64_t>(size)}, {1})
                    .to(device)
                    .storage();
      storage = storages.emplace(path, std::move(bytes)).first;
    }
    const auto needed = static_cast<std::size_t>(extent_of(meta, name)) * c10::elementSize(meta.dtype);
    if (needed > storage->second.nbytes())
      throw std::runtime_error(
          fmt::format("{} needs {} bytes of {}, which has {}", name, needed, path, storage->second.nbytes()));
    tensors.items.push_back({name,
                             at::empty({0}, options)
                                 .set_(storage->second, meta.offset.value, values_of_extents(meta.sizes),
                                       values_of_extents(meta.strides)),
                             payload.at("is_param").get<bool>()});
    if (meta.requires_grad) tensors.items.back().value.set_requires_grad(true);
  }
  return tensors;
}

ExportedArchiveWriter::ExportedArchiveWriter(const std::filesystem::path& file)
    : file_(file.string()),
      out_(file_, std::ios::binary),
      writer_([this](const void* data, std::size_t bytes) {
        out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
        return bytes;
      }) {
  writer_.setMinVersion(6);  // As PyTorch 2.11.
}

void ExportedArchiveWriter::write(const std::string& name, const void* data, std::size_t bytes) {
  writer_.writeRecord(name, data, bytes);
}

// A storage that its tensors fill is written as a whole, so that they share it in the archive, too.
// Otherwise something else lies there, for example what an optimizer keeps with the parameters, and each
// tensor is written alone.
void ExportedArchiveWriter::add_tensors(const std::string& folder, const std::string& prefix,
                                        const std::string& config, const ExportedTensors& tensors) {
  struct Use {
    at::ScalarType dtype;
    std::size_t bytes = 0;
    bool has_one_type = true;
  };
  std::map<const void*, Use> uses;
  std::set<const void*> seen;
  for (const auto& [name, value, is_parameter] : tensors.items) {
    if (!seen.insert(value.unsafeGetTensorImpl()).second) continue;
    auto& use = uses.emplace(value.storage().unsafeGetStorageImpl(), Use{value.scalar_type()}).first->second;
    use.bytes += value.nbytes();
    use.has_one_type = use.has_one_type && use.dtype == value.scalar_type();
  }
  Json entries = Json::object();
  auto& members = entries.get_ref<Json::object_t&>();  // Its names are different, so none is looked for.
  for (const auto& [name, value, is_parameter] : tensors.items) {
    const auto* const storage = value.storage().unsafeGetStorageImpl();
    const auto& use = uses.at(storage);
    const bool is_whole = use.has_one_type && use.bytes >= storage->nbytes();
    const auto known = std::pair(folder, is_whole ? static_cast<const void*>(storage)
                                                  : static_cast<const void*>(value.unsafeGetTensorImpl()));
    const auto described = is_whole ? value : value.detach().clone();
    auto record = records_.find(known);
    if (record == records_.end()) {
      record = records_.emplace(known, fmt::format("{}{}", prefix, records_.size())).first;
      const auto bytes = static_cast<std::int64_t>(described.storage().nbytes());
      const auto on_host = at::empty({0}, described.options().dtype(at::kByte).requires_grad(false))
                               .set_(described.storage(), 0, {bytes}, {1})
                               .to(at::kCPU);
      write(folder + record->second, on_host.data_ptr(), static_cast<std::size_t>(bytes));
    }
    members.emplace_back(name, Json{{"path_name", record->second},
                                    {"is_param", is_parameter},
                                    {"use_pickle", false},
                                    {"tensor_meta",
                                     {{"dtype", exported_number_of(value.scalar_type())},
                                      {"sizes", extents_json(value.sizes())},
                                      {"requires_grad", value.requires_grad()},
                                      {"device", {{"type", "cpu"}, {"index", nullptr}}},
                                      {"strides", extents_json(described.strides())},
                                      {"storage_offset", {{"as_int", described.storage_offset()}}},
                                      {"layout", 7}}}});
  }
  write(folder + config, exact_json_text({{"config", entries}}));
}

void ExportedArchiveWriter::add(const std::string& program, const std::string& document,
                                const std::string& example_inputs, const ExportedTensors& weights,
                                const ExportedTensors& constants) {
  add_tensors("data/weights/", "weight_", program + "_weights_config.json", weights);
  add_tensors("data/constants/", "tensor_", program + "_constants_config.json", constants);
  write("models/" + program + ".json", document);
  write("data/sample_inputs/" + program + ".pt", example_inputs);
}

void ExportedArchiveWriter::close() {
  write("archive_format", "pt2");
  write("archive_version", "0");
  writer_.writeEndOfFile();
  out_.close();
  if (!out_) throw system_error("write", file_);
}

}  // namespace farandole
