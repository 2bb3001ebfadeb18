#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <torch/types.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <boost/algorithm/string/replace.hpp>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/tables/table.h"
#include "farandole/timeline/recorder/recorder_place.h"
#include "farandole/train/tensor_bytes.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/data/labelled_samples.h"
#include "farandole/trainer/data/synthetic.h"
#include "farandole/trainer/data/text_windows.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_classes = 1 << 20;

std::string where(const DataTable& table, std::size_t column) {
  return fmt::format("{}: column {}", table.source(), table.columns()[column].name);
}

// Reads all rows as numbers of `type`. If the file has others, they are converted block by block.
torch::Tensor read_column(const DataTable& table, std::size_t column, torch::ScalarType type) {
  constexpr std::size_t block_bytes = std::size_t{64} << 20;
  const auto& stored = table.columns()[column];
  auto shape = stored.shape;
  shape.insert(shape.begin(), table.rows());
  auto all = torch::empty(shape, type);
  const auto read = [&](torch::Tensor& rows, std::int64_t first) {
    table.read(column, first, rows.size(0), {static_cast<std::byte*>(rows.data_ptr()), bytes_of(rows)});
  };
  if (scalar_type_of(stored.dtype) == type) {
    read(all, 0);
    return all;
  }
  const auto block = std::max<std::int64_t>(1, static_cast<std::int64_t>(block_bytes / stored.row_bytes()));
  for (std::int64_t first = 0; first < table.rows(); first += block) {
    shape.front() = std::min(block, table.rows() - first);
    auto rows = torch::empty(shape, scalar_type_of(stored.dtype));
    read(rows, first);
    all.slice(0, first, first + shape.front()).copy_(rows);
  }
  return all;
}

// Bytes and booleans stay bytes in memory.
torch::Tensor read_feature(const DataTable& table, const std::string& name) {
  const auto column = table.index_of(name);
  const auto dtype = table.columns()[column].dtype;
  const auto& shape = table.columns()[column].shape;
  if (table.rows() == 0 || std::ranges::count(shape, 0) > 0)
    throw UserError(fmt::format("{} has {} rows of shape [{}]; samples need numbers", where(table, column),
                                table.rows(), fmt::join(shape, ", ")));
  if (dtype == DType::uint8 || dtype == DType::boolean) return read_column(table, column, torch::kUInt8);
  auto x = read_column(table, column, torch::kFloat32);
  const auto finite = torch::isfinite(x.reshape({x.size(0), -1})).all(1);
  if (!finite.all().item<bool>())
    throw CorruptInput(
        fmt::format("{}: row {} holds a number that is not finite; correct the number or remove the row",
                    where(table, column), finite.logical_not().nonzero()[0].item<std::int64_t>()));
  return x;
}

// One feature keeps the shape of its rows. The numbers of several stand one after another.
torch::Tensor read_features(const DataTable& table, const std::vector<std::string>& names) {
  std::vector<torch::Tensor> features;
  for (const auto& name : names) features.push_back(read_feature(table, name));
  if (features.size() == 1 && features.front().dim() > 1) return features.front();
  const bool bytes = std::ranges::all_of(
      features, [](const auto& feature) { return feature.scalar_type() == torch::kUInt8; });
  for (auto& feature : features)
    feature = feature.reshape({feature.size(0), -1}).to(bytes ? torch::kUInt8 : torch::kFloat32);
  return torch::cat(features, 1);
}

// Labels are class numbers below `classes`.
torch::Tensor read_labels(const DataTable& table, const std::string& name, std::int64_t classes) {
  const auto column = table.index_of(name);
  const auto dtype = table.columns()[column].dtype;
  const auto& shape = table.columns()[column].shape;
  if (!shape.empty())
    throw UserError(fmt::format("{} has rows of shape [{}]; a label is one class number per row",
                                where(table, column), fmt::join(shape, ", ")));
  const bool floats = torch::isFloatingType(scalar_type_of(dtype));
  const auto raw = read_column(table, column, floats ? torch::kFloat64 : torch::kInt64);
  // In double, every number up to most_classes is exact, and comparisons with NaN are false.
  const auto exact = raw.to(torch::kFloat64);
  const auto good =
      exact.ge(0).logical_and(exact.lt(static_cast<double>(classes))).logical_and(exact.eq(exact.floor()));
  if (!good.all().item<bool>()) {
    const auto row = good.logical_not().nonzero()[0].item<std::int64_t>();
    throw CorruptInput(fmt::format("{}: row {} holds {}; labels must be whole numbers from 0 to {}",
                                   where(table, column), row, exact[row].item<double>(), classes - 1));
  }
  return raw.to(torch::kInt64);
}

DataSplit open_samples(const DataOptions& options) {
  auto names = options.features;
  names.push_back(options.label);
  const auto table = open_table(options.path, names);
  if (options.warns)
    for (const auto& warning : table->warnings()) log_warning("{}", warning);
  LabelledTensors tensors;
  tensors.x = read_features(*table, options.features);
  tensors.y = read_labels(*table, options.label, most_classes);
  auto highest = tensors.y.max().item<std::int64_t>();
  const auto of_tests = [](std::string name) { return std::move(name) + "_test"; };
  if (std::ranges::any_of(names, [&](const auto& name) { return table->has(of_tests(name)); })) {
    std::ranges::transform(names, names.begin(), of_tests);
    const auto tests = open_table(options.path, names);
    names.pop_back();
    tensors.x_test = read_features(*tests, names);
    tensors.y_test = read_labels(*tests, of_tests(options.label), most_classes);
    highest = std::max(highest, tensors.y_test.max().item<std::int64_t>());
    if (tensors.x_test.sizes().slice(1) != tensors.x.sizes().slice(1))
      throw UserError(fmt::format("{}: the samples of {} and {} have different shapes", options.path,
                                  fmt::join(names, ", "), fmt::join(options.features, ", ")));
  }
  tensors.classes = highest + 1;
  return split_samples(std::move(tensors), plain_bytes(), options.held_out, options.path);
}

// The files of a folder by their names without .gz. A plain file is preferred to its .gz file.
using Images = std::map<std::string, fs::path>;

// Finds images by the names of MNIST: train*-images-idx3-ubyte, t10k*-… and test*-….
Images find_images(const fs::path& folder, const std::vector<std::string>& prefixes) {
  Images found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    const bool packed = name.ends_with(".gz");
    const auto plain = packed ? name.substr(0, name.size() - 3) : name;
    const auto begins = [&](const std::string& prefix) { return plain.starts_with(prefix); };
    if (std::ranges::none_of(prefixes, begins) || !plain.ends_with("images-idx3-ubyte") ||
        !entry.is_regular_file())
      continue;
    if (packed)
      found.try_emplace(plain, entry.path());
    else
      found.insert_or_assign(plain, entry.path());
  }
  return found;
}

Images training_images(const fs::path& folder) {
  return find_images(folder, {"train"});
}

Images test_images(const fs::path& folder) {
  return find_images(folder, {"t10k", "test"});
}

// Returns the only file of images, and its labels, which have the same name with labels-idx1.
std::pair<fs::path, fs::path> pair_of(const fs::path& folder, const Images& found, const char* what) {
  if (found.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, path] : found) names.push_back(path.filename().string());
    throw UserError(
        fmt::format("{}: several files of {} images: {}; keep one and move the others to another folder",
                    folder.string(), what, fmt::join(names, ", ")));
  }
  constexpr std::string_view of_images = "images-idx3";
  const auto& [name, images] = *found.begin();
  auto labels = name;
  labels.replace(labels.rfind(of_images), of_images.size(), "labels-idx1");
  for (const auto* ending : {"", ".gz"})
    if (fs::is_regular_file(folder / (labels + ending))) return {images, folder / (labels + ending)};
  throw UserError(
      fmt::format("{}: there are no labels for {}; neither {} nor {}.gz exists in the same folder",
                  folder.string(), images.filename().string(), labels, labels));
}

std::shared_ptr<const DataTable> open_idx(const char* column, const fs::path& file, std::size_t dimensions) {
  auto table = open_table(std::vector<TableFile>{{column, file}});
  const auto dtype = table->columns().front().dtype;
  const auto& shape = table->columns().front().shape;
  if (dtype != DType::uint8 || shape.size() + 1 != dimensions)
    throw CorruptInput(fmt::format(
        "{} has {} dimensions of {}; IDX images have 3 dimensions of bytes, and labels have 1; are they swapped?",
        file.string(), shape.size() + 1, name_of(dtype)));
  return table;
}

// Returns images as bytes [n, 1, rows, columns] and labels [n].
std::pair<torch::Tensor, torch::Tensor> read_pair(const std::pair<fs::path, fs::path>& files) {
  constexpr std::int64_t classes = 10;
  const auto images = open_idx("images", files.first, 3), labels = open_idx("labels", files.second, 1);
  if (images->rows() != labels->rows())
    throw CorruptInput(fmt::format("{}: {} labels for the {} images of {}; the files do not belong together",
                                   labels->source(), labels->rows(), images->rows(), images->source()));
  return {read_feature(*images, "images").unsqueeze(1), read_labels(*labels, "labels", classes)};
}

DataSplit open_images(const fs::path& folder, double held_out) {
  const auto training = training_images(folder), tests = test_images(folder);
  if (training.empty())
    throw UserError(fmt::format(
        "{}: no training images; looked for train*-images-idx3-ubyte[.gz], and found test images only",
        folder.string()));
  const auto files = pair_of(folder, training, "training");
  LabelledTensors tensors{.x = {}, .y = {}, .x_test = {}, .y_test = {}, .classes = 10};
  std::tie(tensors.x, tensors.y) = read_pair(files);
  auto source = files.first.string();
  if (!tests.empty()) {
    const auto test_files = pair_of(folder, tests, "test");
    std::tie(tensors.x_test, tensors.y_test) = read_pair(test_files);
    source += " and " + test_files.first.filename().string();
    if (tensors.x_test.sizes().slice(1) != tensors.x.sizes().slice(1))
      throw CorruptInput(fmt::format("{}: the size of the images differs from {}", test_files.first.string(),
                                     files.first.string()));
  }
  return split_samples(std::move(tensors), mnist_scale(), held_out, source);
}

DataSplit open_text(const DataOptions& options) {
  auto text = read_text(options.path);
  const auto source =
      text.files == 1 ? fmt::format("{} ({} bytes)", options.path, text.bytes.size())
                      : fmt::format("{} ({} files, {} bytes)", options.path, text.files, text.bytes.size());
  return split_text(std::move(text.bytes), options.context, options.held_out, source);
}

}  // namespace

DataSplit open_data(const DataOptions& options) {
  if (options.path == "synthetic")
    return options.as_text ? synthetic_text(options) : synthetic_samples(options);
  const auto files = options.as_text ? std::vector<TableFile>{{"", options.path}} : table_files(options.path);
  for (const auto& [name, file] : files)
    if (!fs::exists(file))
      throw UserError(fmt::format(
          "--data {}: there is no such file or folder; name an existing one, or use --data synthetic",
          options.path));
  const fs::path path = options.path;
  const bool images = fs::is_directory(path) && !(training_images(path).empty() && test_images(path).empty());
  if (options.as_text) {
    if (!is_hdf5(path) && !images) return open_text(options);
    throw UserError(
        fmt::format("--data {} holds {}, and the model gpt learns text: use --model mlp{}, or name a text",
                    options.path, images ? "images" : "samples with labels", images ? " or mnist" : ""));
  }
  if (images) return open_images(path, options.held_out);
  if (std::ranges::all_of(files, [](const auto& file) { return is_table(file.file); }))
    return open_samples(options);
  throw UserError(fmt::format(
      "--data {} holds no samples with labels (looked for {}), which the models mnist and mlp "
      "learn from: name a folder of IDX files or a table, or use --model gpt for text",
      options.path,
      fs::is_directory(path) ? "train*-images-idx3-ubyte[.gz] in it" : "an HDF5, CSV, NumPy or IDX file"));
}

namespace {

namespace fs = std::filesystem;

std::uint64_t size_of_data(const fs::path& data) {
  if (!fs::is_directory(data)) return fs::file_size(data);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(data))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// The files or the folder of the data; empty if there is nothing to copy.
std::vector<TableFile> sources_of(const std::string& data, const std::string& scratch) {
  if (scratch.empty() || data == "synthetic") return {};
  auto files = table_files(data);
  for (auto& [name, file] : files) {
    if (!fs::exists(file)) return {};
    file = fs::path(fs::absolute(file) / "").parent_path();  // no slash at its end
  }
  return files;
}

// The same on all ranks of a node, because the first of them copies only after all have called this.
fs::path place_of(const std::vector<TableFile>& sources, const std::string& scratch) {
  if (sources.empty()) return "";
  std::uint64_t bytes = 0;
  for (const auto& source : sources) bytes += size_of_data(source.file);
  return place_recorder(sources.front().file, {scratch, "--data-scratch"}, bytes).folder;
}

fs::path copy_of(const std::vector<TableFile>& sources, std::size_t i, const fs::path& folder) {
  return folder / std::to_string(i) / sources[i].file.filename();
}

// A folder that is there belongs to somebody else, who could read or replace the data.
void make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0)
    throw UserError(fmt::format("--data-scratch: {} cannot be made: {}; name another folder", folder.string(),
                                std::strerror(errno)));
}

void copy_data(const std::vector<TableFile>& sources, const fs::path& folder) try {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto to = copy_of(sources, i, folder);
    fs::create_directory(to.parent_path());
    fs::copy(sources[i].file, to, fs::copy_options::recursive);
  }
} catch (const fs::filesystem_error& error) {
  throw UserError(fmt::format("--data-scratch: {} cannot be copied to {}: {}; name another folder",
                              sources.front().file.string(), folder.string(), error.code().message()));
}

}  // namespace

DataSplit open_staged_data(Session& session, const DataOptions& options, const std::string& scratch) {
  auto name = fmt::format("farandole-data-{}-{}", real_time_ns(), ::getpid());
  session.broadcast(name);
  std::vector<TableFile> sources;
  fs::path copy;
  session.together([&] {
    sources = sources_of(options.path, scratch);
    if (const auto place = place_of(sources, scratch); !place.empty())
      copy = place / fmt::format("{}-{}", name, session.node());
  });
  bool made = false;
  const auto remove_copy = [&] {
    std::error_code ignored;
    if (made) fs::remove_all(copy, ignored);
  };
  DataSplit data;
  try {
    auto own = options;
    own.warns = session.rank() == 0;
    session.together([&] {
      if (copy.empty()) return;
      own.path.clear();
      for (std::size_t i = 0; i < sources.size(); ++i)
        own.path += (i == 0 ? "" : ",") + (sources[i].name.empty() ? "" : sources[i].name + "=") +
                    copy_of(sources, i, copy).string();
      if (session.local_rank() != 0) return;
      make_folder(copy);
      made = true;
      copy_data(sources, copy);
    });
    session.together([&] { data = open_data(own); });
    if (!copy.empty()) boost::replace_first(data.source, own.path, options.path);
  } catch (...) {
    remove_copy();
    throw;
  }
  remove_copy();
  return data;
}

}  // namespace farandole
