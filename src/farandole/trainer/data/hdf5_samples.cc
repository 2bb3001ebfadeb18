#include "farandole/trainer/data/hdf5_samples.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <string>
#include <string_view>
#include <torch/types.h>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/trainer/data/labelled_samples.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using Kind = Hdf5Dataset::Kind;

constexpr std::int64_t most_classes = 1 << 20;
constexpr std::uintmax_t densest_packing = 2048;  // Twice the best compression ratio of deflate.

std::string where(const Hdf5Dataset& data, const char* path) {
  return data.file() + ": data set " + path;
}

// Reads all rows into a tensor of `type`. HDF5 converts the stored numbers to `dtype`.
torch::Tensor read_all(const Hdf5Dataset& data, const char* path, DType dtype, torch::ScalarType type) {
  std::uintmax_t bytes = size_of(dtype);
  bool overflow = false;
  for (const auto extent : data.shape()) {
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uintmax_t>(extent), &bytes);
  }
  if (overflow || bytes / densest_packing > fs::file_size(data.file())) {
    throw CorruptInput(fmt::format(
        "{} declares the shape [{}], which does not fit into a file of {} bytes; write the file again",
        where(data, path), fmt::join(data.shape(), ", "), fs::file_size(data.file())));
  }
  auto tensor = torch::empty(data.shape(), type);
  data.read_rows(0, data.rows(), dtype,
                 {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(bytes)});
  return tensor;
}

torch::Tensor read_x(const Hdf5File& file, const char* path) {
  const auto data = file.dataset(path);
  const auto& shape = data.shape();
  if (shape.size() < 2 || std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    throw UserError(
        fmt::format("{} has the shape [{}]; samples need the shape [n, …], and no dimension may be 0",
                    where(data, path), fmt::join(shape, ", ")));
  }
  if (data.kind() == Kind::other) {
    throw UserError(
        fmt::format("{} has the type {}; samples must be numbers", where(data, path), data.type_name()));
  }
  if (data.kind() == Kind::boolean) return read_all(data, path, DType::boolean, torch::kUInt8);
  if (data.dtype() == DType::uint8) return read_all(data, path, DType::uint8, torch::kUInt8);
  auto x = read_all(data, path, DType::float32, torch::kFloat32);
  const auto finite = torch::isfinite(x.flatten(1)).all(1);
  if (!finite.all().item<bool>()) {
    throw CorruptInput(
        fmt::format("{}: row {} holds a number that is not finite; correct the number or remove the row",
                    where(data, path), finite.logical_not().nonzero()[0].item<std::int64_t>()));
  }
  return x;
}

torch::Tensor read_y(const Hdf5File& file, const char* path, std::int64_t samples) {
  const auto data = file.dataset(path);
  if (data.shape().size() != 1 || data.rows() != samples) {
    throw UserError(fmt::format("{} has the shape [{}]; labels for these samples need the shape [{}]",
                                where(data, path), fmt::join(data.shape(), ", "), samples));
  }
  if (data.kind() == Kind::other) {
    throw UserError(
        fmt::format("{} has the type {}; labels must be class numbers", where(data, path), data.type_name()));
  }
  if (data.kind() == Kind::boolean)
    return read_all(data, path, DType::boolean, torch::kUInt8).to(torch::kInt64);
  const bool floats = data.kind() == Kind::floating;
  const auto raw = floats ? read_all(data, path, DType::float64, torch::kFloat64)
                          : read_all(data, path, DType::int64, torch::kInt64);
  // In double, every number up to most_classes is exact, and comparisons with NaN are false.
  const auto exact = raw.to(torch::kFloat64);
  const auto good = exact.ge(0)
                        .logical_and(exact.lt(static_cast<double>(most_classes)))
                        .logical_and(exact.eq(exact.floor()));
  if (!good.all().item<bool>()) {
    const auto row = good.logical_not().nonzero()[0].item<std::int64_t>();
    throw CorruptInput(fmt::format("{}: row {} holds {}; labels must be whole numbers from 0 to {}",
                                   where(data, path), row, exact[row].item<double>(), most_classes - 1));
  }
  return raw.to(torch::kInt64);
}

}  // namespace

bool is_hdf5_file(const fs::path& file) {
  if (!fs::is_regular_file(file)) return false;
  if (file.extension() == ".h5" || file.extension() == ".hdf5") return true;
  constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";
  std::ifstream stream(file, std::ios::binary);
  std::array<char, signature.size()> start{};
  for (std::streamoff offset = 0; stream && offset <= 1 << 20; offset = offset == 0 ? 512 : 2 * offset) {
    stream.seekg(offset);
    stream.read(start.data(), start.size());
    if (stream && std::string_view(start.data(), start.size()) == signature) return true;
  }
  return false;
}

DataSplit read_hdf5_samples(const fs::path& path, double held_out) {
  const auto file = Hdf5File::open(path);
  for (const auto* name : {"/x", "/y"}) {
    if (!file.contains(name)) {
      throw UserError(fmt::format("{} has no data set {}; samples are read from /x and /y{}", path.string(),
                                  name, fmt::format("; it has {}", fmt::join(file.list(), ", "))));
    }
  }
  LabelledTensors tensors;
  tensors.x = read_x(file, "/x");
  tensors.y = read_y(file, "/y", tensors.x.size(0));
  auto highest = tensors.y.max().item<std::int64_t>();
  if (file.contains("/x_test")) {
    tensors.x_test = read_x(file, "/x_test");
    tensors.y_test = read_y(file, "/y_test", tensors.x_test.size(0));
    highest = std::max(highest, tensors.y_test.max().item<std::int64_t>());
    if (tensors.x_test.sizes().slice(1) != tensors.x.sizes().slice(1)) {
      throw UserError(fmt::format("{}: the samples of /x_test and /x have different shapes", path.string()));
    }
  }
  tensors.classes = highest + 1;
  return split_samples(std::move(tensors), plain_bytes(), held_out, path.string());
}

}  // namespace farandole
