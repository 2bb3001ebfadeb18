#include "farandole/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <span>
#include <system_error>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/schema.h"

namespace farandole {

// An open checkpoint whose manifest was verified. The bytes of its arrays were not.
struct CheckpointReader::Impl {
  struct StoredArray {
    Array array;  // Without its bytes.
    Hdf5Dataset dataset;
    std::string checksum;
  };

  Snapshot header;
  std::vector<StoredArray> stored;  // In the order of header.arrays.
};

namespace {

using OpenCheckpoint = CheckpointReader::Impl;
using StoredArray = OpenCheckpoint::StoredArray;

// Of an array: over its bytes; of the root: over the manifest.
constexpr const char* checksum_attribute = "xxh3";

std::string as_text(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

struct ArraySummary {
  std::string path;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::string checksum;
};

// A checksum of everything in the file except the arrays' bytes. It detects lost
// arrays and changed attributes.
std::string manifest_checksum(const Snapshot& snapshot, std::vector<ArraySummary> arrays,
                              const std::string& not_finite, std::int64_t version) {
  std::sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  auto text =
      fmt::format("version {} step {} epoch {} world_size {} score {:016x} config {}:{}\n", version,
                  snapshot.step, snapshot.epoch, snapshot.world_size,
                  std::bit_cast<std::uint64_t>(snapshot.score), snapshot.config.size(), snapshot.config);
  if (version > 1)
    text += fmt::format("best_score {:016x} best_step {} versions {}:{}\n",
                        std::bit_cast<std::uint64_t>(snapshot.best_score), snapshot.best_step,
                        snapshot.versions.size(), snapshot.versions);
  for (const auto& array : arrays)
    text += fmt::format("{}:{} {} [{}] {}\n", array.path.size(), array.path, name_of(array.dtype),
                        fmt::join(array.shape, ","), array.checksum);
  if (!not_finite.empty()) text += "not_finite " + not_finite + "\n";
  return as_text(XXH3_64bits(text.data(), text.size()));
}

// A generous bound of the bytes that HDF5 needs beside the arrays, for groups, types and attributes.
std::size_t metadata_bound(const Snapshot& snapshot) {
  constexpr std::size_t per_array = 2048;
  std::size_t bytes = 4 * per_array + 2 * (snapshot.config.size() + snapshot.versions.size());
  for (const auto& array : snapshot.arrays) bytes += per_array + 2 * array.path.size();
  return bytes;
}

void check_file_size_limit(const std::filesystem::path& file, const Snapshot& snapshot) {
  const auto limit = file_size_limit();
  if (!limit) return;
  constexpr std::uint64_t most_padding = 4096;
  std::uint64_t bytes = metadata_bound(snapshot);
  for (const auto& array : snapshot.arrays) bytes += array.bytes.size() + most_padding;
  if (bytes > *limit)
    throw Error(fmt::format(
        "write {}: up to {} bytes are needed, but files may have only {}; raise the limit (ulimit -f)",
        file.string(), bytes, *limit));
}

template <typename Value>
Value required(std::optional<Value> value, const std::filesystem::path& file, const char* what) {
  if (!value)
    throw CorruptInput(
        fmt::format("{}: there is no attribute {} of the expected type; the file is not a checkpoint",
                    file.string(), what));
  return std::move(*value);
}

std::int64_t read_version(const Hdf5File& hdf5, const std::filesystem::path& file) {
  const auto version = required(hdf5.integer_attribute("/", "format_version"), file, "format_version");
  if (version > schema::format_version)
    throw CorruptInput(
        fmt::format("{}: checkpoint format_version {} is newer than this Farandole's {}; read it with "
                    "the version that wrote it",
                    file.string(), version, schema::format_version));
  if (version < 1)
    throw CorruptInput(
        fmt::format("{}: checkpoint format_version {} does not exist", file.string(), version));
  return version;
}

Snapshot read_attributes(const Hdf5File& hdf5, const std::filesystem::path& file, std::int64_t version) {
  Snapshot snapshot;
  snapshot.format_version = version;
  snapshot.step = required(hdf5.integer_attribute("/", "step"), file, "step");
  snapshot.epoch = required(hdf5.integer_attribute("/", "epoch"), file, "epoch");
  snapshot.world_size =
      static_cast<int>(required(hdf5.integer_attribute("/", "world_size"), file, "world_size"));
  snapshot.config = required(hdf5.string_attribute("/", "config"), file, "config");
  snapshot.score = required(hdf5.double_attribute("/", "score"), file, "score");
  snapshot.not_finite = hdf5.string_attribute("/", "not_finite").value_or("");
  if (version == 1) return snapshot;
  snapshot.best_score = required(hdf5.double_attribute("/", "best_score"), file, "best_score");
  snapshot.best_step = required(hdf5.integer_attribute("/", "best_step"), file, "best_step");
  snapshot.versions = required(hdf5.string_attribute("/", "versions"), file, "versions");
  return snapshot;
}

OpenCheckpoint open_checkpoint(const std::filesystem::path& file) {
  const auto hdf5 = Hdf5File::open(file);
  const auto version = read_version(hdf5, file);
  OpenCheckpoint checkpoint{read_attributes(hdf5, file, version), {}};
  for (auto& dataset : hdf5.datasets()) {
    const auto& path = dataset.path();
    if (!dataset.dtype())
      throw CorruptInput(fmt::format("{}: data set {} has type {}, which checkpoints do not contain",
                                     file.string(), path, dataset.type_name()));
    auto checksum = required(dataset.string_attribute(checksum_attribute), file, checksum_attribute);
    Array array{path, *dataset.dtype(), dataset.shape(), {}};
    checkpoint.stored.push_back({std::move(array), std::move(dataset), std::move(checksum)});
  }
  std::vector<ArraySummary> summaries;
  for (const auto& [array, dataset, checksum] : checkpoint.stored) {
    checkpoint.header.arrays.push_back(array);
    summaries.push_back({array.path, array.dtype, array.shape, checksum});
  }
  const auto expected = required(hdf5.string_attribute("/", checksum_attribute), file, checksum_attribute);
  const auto found =
      manifest_checksum(checkpoint.header, std::move(summaries), checkpoint.header.not_finite, version);
  if (expected != found)
    throw CorruptInput(
        fmt::format("{}: attributes and data sets give checksum {}, not the recorded {}; the file is "
                    "damaged or was changed",
                    file.string(), found, expected));
  return checkpoint;
}

// Fills the bytes of the array, which have its size, and returns whether they are finite.
bool read_array(const StoredArray& stored, std::span<std::byte> bytes) {
  Digester digester(stored.array.dtype);
  stored.dataset.read(bytes, [&](auto piece) { digester.update(piece); });
  const auto digest = digester.result();
  const auto found = as_text(digest.xxh3);
  if (found != stored.checksum)
    throw CorruptInput(
        fmt::format("{}: data set {} has checksum {}, not the recorded {}; the file is damaged",
                    stored.dataset.file(), stored.array.path, found, stored.checksum));
  return digest.finite;
}

std::size_t bytes_of(const Array& array) {
  return array.count() * size_of(array.dtype);
}

// Returns the path of the first array that is not finite, or "".
std::string write_file(const std::filesystem::path& file, const Snapshot& snapshot) {
  check_file_size_limit(file, snapshot);
  auto hdf5 = Hdf5File::create(file, metadata_bound(snapshot));
  std::vector<ArraySummary> summaries;
  std::string not_finite;
  for (const auto& array : snapshot.arrays) {
    Digester digester(array.dtype);
    hdf5.write_array(array.path, array.dtype, array.shape, array.bytes,
                     [&](auto piece) { digester.update(piece); });
    const auto digest = digester.result();
    if (not_finite.empty() && !digest.finite) not_finite = array.path;
    summaries.push_back({array.path, array.dtype, array.shape, as_text(digest.xxh3)});
    hdf5.set_attribute(array.path, checksum_attribute, summaries.back().checksum);
  }
  hdf5.set_attribute("/", "format_version", std::int64_t{schema::format_version});
  hdf5.set_attribute("/", "step", snapshot.step);
  hdf5.set_attribute("/", "epoch", snapshot.epoch);
  hdf5.set_attribute("/", "world_size", std::int64_t{snapshot.world_size});
  hdf5.set_attribute("/", "config", snapshot.config);
  hdf5.set_attribute("/", "versions", snapshot.versions);
  hdf5.set_attribute("/", "score", snapshot.score);
  hdf5.set_attribute("/", "best_score", snapshot.best_score);
  hdf5.set_attribute("/", "best_step", snapshot.best_step);
  if (!not_finite.empty()) hdf5.set_attribute("/", "not_finite", not_finite);
  hdf5.set_attribute("/", checksum_attribute,
                     manifest_checksum(snapshot, std::move(summaries), not_finite, schema::format_version));
  hdf5.close();
  return not_finite;
}

}  // namespace

std::string find_nonfinite(const Snapshot& snapshot) {
  for (const auto& array : snapshot.arrays)
    if (!digest_of(array).finite) return array.path;
  return {};
}

std::string write_checkpoint(const std::filesystem::path& file, const Snapshot& snapshot,
                             const std::function<void()>& written) {
  AtomicFile checkpoint(file);
  auto not_finite = write_file(checkpoint.temporary(), snapshot);
  written();
  checkpoint.publish();
  return not_finite;
}

CheckpointReader::CheckpointReader(const std::filesystem::path& file)
    : impl_(new Impl(open_checkpoint(file))) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const Snapshot& CheckpointReader::header() const {
  return impl_->header;
}

Array CheckpointReader::read(std::size_t index) const {
  const auto& stored = impl_->stored.at(index);
  auto array = stored.array;
  array.bytes.resize(bytes_of(array));
  read_array(stored, array.bytes);
  return array;
}

Snapshot read_checkpoint_header(const std::filesystem::path& file) {
  return open_checkpoint(file).header;
}

Snapshot read_checkpoint(const std::filesystem::path& file, const ArrayMemory& memory) {
  auto checkpoint = open_checkpoint(file);
  auto& header = checkpoint.header;
  // All arrays share one piece of memory, in which small ones have huge pages, too.
  std::error_code unknown;
  const auto file_bytes = std::filesystem::file_size(file, unknown);
  const auto block = std::make_shared<MemoryBlock>(unknown ? 0 : file_bytes);
  for (std::size_t i = 0; i < checkpoint.stored.size(); ++i) {
    auto& array = header.arrays[i];
    std::span<std::byte> bytes = memory ? memory(array) : std::span<std::byte>();
    if (bytes.empty()) {
      array.bytes = Bytes(bytes_of(array), LargeAllocator<std::byte>(block));
      bytes = array.bytes;
    }
    if (!read_array(checkpoint.stored[i], bytes) && header.not_finite.empty()) header.not_finite = array.path;
  }
  return std::move(header);
}

Snapshot verify_checkpoint(const std::filesystem::path& file) {
  auto checkpoint = open_checkpoint(file);
  auto& not_finite = checkpoint.header.not_finite;
  Bytes bytes;
  for (const auto& stored : checkpoint.stored) {
    bytes.resize(bytes_of(stored.array));
    if (!read_array(stored, bytes) && not_finite.empty()) not_finite = stored.array.path;
  }
  return std::move(checkpoint.header);
}

}  // namespace farandole
