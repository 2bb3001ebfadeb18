#include "farandole/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <span>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/checkpoint/schema.h"

namespace farandole {

// An open checkpoint whose manifest was verified. The bytes of its arrays were not.
struct CheckpointReader::Impl {
  Hdf5File file;
  Snapshot header;
  // Of header.arrays.
  std::vector<Hdf5Dataset> datasets;
  std::vector<std::string> checksums;
};

namespace {

using OpenCheckpoint = CheckpointReader::Impl;

constexpr const char* checksum_attribute =
    "xxh3";  // of an array: over its bytes; of the root: over the manifest

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
                              const std::string& not_finite, std::int64_t version = schema::format_version) {
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

// Generous bound of the bytes that HDF5 needs per array, including its share of groups and attributes.
constexpr std::uint64_t overhead_bytes = 8192;

// The limit also applies to HDF5's image in memory, where no write may fail.
void check_file_size_limit(const std::filesystem::path& file, const Snapshot& snapshot) {
  const auto limit = file_size_limit();
  if (!limit) return;
  std::uint64_t bytes = 2 * overhead_bytes + 2 * (snapshot.config.size() + snapshot.versions.size());
  for (const auto& array : snapshot.arrays) bytes += array.bytes.size() + overhead_bytes;
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
  auto hdf5 = Hdf5File::open(file);
  const auto version = read_version(hdf5, file);
  auto header = read_attributes(hdf5, file, version);
  auto datasets = hdf5.datasets();
  std::vector<std::string> checksums;
  std::vector<ArraySummary> summaries;
  for (const auto& dataset : datasets) {
    const auto& path = dataset.path();
    if (!dataset.dtype())
      throw CorruptInput(fmt::format("{}: data set {} has type {}, which checkpoints do not contain",
                                     file.string(), path, dataset.type_name()));
    checksums.push_back(required(dataset.string_attribute(checksum_attribute), file, checksum_attribute));
    header.arrays.push_back({path, *dataset.dtype(), dataset.shape(), {}});
    summaries.push_back({path, *dataset.dtype(), dataset.shape(), checksums.back()});
  }
  const auto expected = required(hdf5.string_attribute("/", checksum_attribute), file, checksum_attribute);
  const auto found = manifest_checksum(header, std::move(summaries), header.not_finite, version);
  if (expected != found)
    throw CorruptInput(
        fmt::format("{}: attributes and data sets give checksum {}, not the recorded {}; the file is "
                    "damaged or was changed",
                    file.string(), found, expected));
  return {std::move(hdf5), std::move(header), std::move(datasets), std::move(checksums)};
}

// Fills the bytes of the array, which have its size, and returns whether they are finite.
bool read_array(const OpenCheckpoint& checkpoint, std::size_t index, std::span<std::byte> bytes) {
  const auto& dataset = checkpoint.datasets[index];
  Digester digester(checkpoint.header.arrays[index].dtype);
  dataset.read(bytes, [&](auto piece) { digester.update(piece); });
  const auto digest = digester.result();
  const auto found = as_text(digest.xxh3);
  if (found != checkpoint.checksums[index])
    throw CorruptInput(fmt::format(
        "{}: data set {} has checksum {}, not the recorded {}; the file is damaged", dataset.file(),
        checkpoint.header.arrays[index].path, found, checkpoint.checksums[index]));
  return digest.finite;
}

std::size_t bytes_of(const Array& array) {
  return array.count() * size_of(array.dtype);
}

// Reads the arrays on several threads, because the checksums take as long as the copies from the page cache. Other cores are
// idle while a run restarts.
class ParallelRead {
 public:
  explicit ParallelRead(OpenCheckpoint& checkpoint)
      : checkpoint_(checkpoint), finite_(checkpoint.header.arrays.size()), errors_(finite_.size()) {}

  void run() {
    constexpr std::size_t most_threads = 8, thread_bytes = std::size_t{8} << 20;
    std::size_t bytes = 0;
    for (auto& array : checkpoint_.header.arrays) {
      array.bytes.resize(bytes_of(array));
      bytes += array.bytes.size();
    }
    const auto threads =
        std::min({static_cast<std::size_t>(allowed_cores()), most_threads, bytes / thread_bytes + 1});
    std::vector<std::thread> helpers;
    try {
      while (helpers.size() + 1 < threads) helpers.push_back(start_quiet_thread([this] { work(); }));
    } catch (const std::system_error&) {  // The limit of threads is reached.
    }
    work();
    for (auto& helper : helpers) helper.join();
    for (std::size_t i = 0; i < finite_.size(); ++i) {
      if (errors_[i]) std::rethrow_exception(errors_[i]);
      if (!finite_[i] && checkpoint_.header.not_finite.empty())
        checkpoint_.header.not_finite = checkpoint_.header.arrays[i].path;
    }
  }

 private:
  void work() {
    for (auto i = next_++; i < finite_.size(); i = next_++) {
      try {
        finite_[i] = read_array(checkpoint_, i, checkpoint_.header.arrays[i].bytes);
      } catch (...) {
        errors_[i] = std::current_exception();
      }
    }
  }

  OpenCheckpoint& checkpoint_;
  std::vector<char> finite_;  // Of each array; not bool, whose neighbours share a byte.
  std::vector<std::exception_ptr> errors_;
  std::atomic<std::size_t> next_ = 0;
};

// Returns the path of the first array that is not finite, or "".
std::string write_file(const std::filesystem::path& file, const Snapshot& snapshot) {
  check_file_size_limit(file, snapshot);
  auto hdf5 = Hdf5File::create(file);
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
  hdf5.set_attribute("/", checksum_attribute, manifest_checksum(snapshot, std::move(summaries), not_finite));
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
  const auto temporary = temporary_beside(file);
  try {
    auto not_finite = write_file(temporary, snapshot);
    written();
    publish_file(temporary, file);
    return not_finite;
  } catch (...) {
    discard_file(temporary, file);
    throw;
  }
}

CheckpointReader::CheckpointReader(const std::filesystem::path& file)
    : impl_(new Impl(open_checkpoint(file))) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const Snapshot& CheckpointReader::header() const {
  return impl_->header;
}

Array CheckpointReader::read(std::size_t index) const {
  auto array = header().arrays.at(index);
  array.bytes.resize(bytes_of(array));
  read_array(*impl_, index, array.bytes);
  return array;
}

Snapshot read_checkpoint_header(const std::filesystem::path& file) {
  return open_checkpoint(file).header;
}

Snapshot read_checkpoint(const std::filesystem::path& file) {
  auto checkpoint = open_checkpoint(file);
  ParallelRead(checkpoint).run();
  return std::move(checkpoint.header);
}

Snapshot verify_checkpoint(const std::filesystem::path& file) {
  auto checkpoint = open_checkpoint(file);
  Bytes bytes;
  for (std::size_t i = 0; i < checkpoint.header.arrays.size(); ++i) {
    const auto& array = checkpoint.header.arrays[i];
    bytes.resize(bytes_of(array));
    if (!read_array(checkpoint, i, bytes) && checkpoint.header.not_finite.empty())
      checkpoint.header.not_finite = array.path;
  }
  return std::move(checkpoint.header);
}

}  // namespace farandole
