#include "farandole/trainer/data/idx_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <zlib.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::uint32_t images_magic = 2051;
constexpr std::uint32_t labels_magic = 2049;
constexpr std::size_t chunk_bytes = 1 << 20;

// Reads the bytes of a file. zlib detects from the first bytes whether the file is compressed.
class ByteReader {
 public:
  explicit ByteReader(const std::filesystem::path& file) : name_(file.string()) {
    if (std::filesystem::is_directory(file)) throw UserError(name_ + " is a folder, not an IDX file");
    errno = 0;
    gz_.reset(gzopen(name_.c_str(), "rb"));
    if (!gz_) throw UserError(fmt::format("cannot open {}: {}", name_, std::strerror(errno)));
    gzbuffer(gz_.get(), 1 << 18);
  }

  const std::string& name() const { return name_; }
  std::uint64_t offset() const { return offset_; }

  // Returns fewer bytes than requested only at the end of the file.
  std::size_t read(std::span<std::uint8_t> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto want = std::min(bytes.size() - done, chunk_bytes);
      const int got = gzread(gz_.get(), bytes.data() + done, static_cast<unsigned>(want));
      if (got > 0) {
        done += static_cast<std::size_t>(got);
        offset_ += static_cast<std::uint64_t>(got);
      }
      check();
      if (got <= 0) break;
    }
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  void check() {
    int code = Z_OK;
    const char* text = gzerror(gz_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    if (code == Z_ERRNO) throw Error(fmt::format("read {}: {}", name_, std::strerror(errno)));
    if (code == Z_BUF_ERROR) {
      throw CorruptInput(
          fmt::format("{}: its gzip stream ends early, after {} unpacked bytes: download or copy it again",
                      name_, offset_));
    }
    throw CorruptInput(fmt::format("{}: damaged gzip stream after {} unpacked bytes ({}): download it again",
                                   name_, offset_, text));
  }

  std::string name_;
  std::unique_ptr<gzFile_s, Close> gz_;
  std::uint64_t offset_ = 0;
};

// The big-endian numbers at the begin of a file: the magic number, then the size of each dimension.
template <std::size_t N>
std::array<std::uint32_t, N> read_header(ByteReader& reader, std::uint32_t magic, const char* what) {
  std::array<std::uint8_t, 4 * N> bytes{};
  const auto found = reader.read(bytes);
  std::array<std::uint32_t, N> numbers{};
  for (std::size_t i = 0; i < bytes.size(); ++i) numbers[i / 4] = numbers[i / 4] << 8 | bytes[i];
  if (found >= 4 && numbers[0] != magic) {
    throw CorruptInput(
        fmt::format("{}: begins with {} (offset 0), not with {}, the magic number of IDX {}: {}",
                    reader.name(), numbers[0], magic, what,
                    numbers[0] == images_magic || numbers[0] == labels_magic ? "images and labels are swapped"
                                                                             : "name an IDX file"));
  }
  if (found < bytes.size()) {
    throw CorruptInput(fmt::format(
        "{}: truncated at offset {}: the header of IDX {} has {} bytes; download or copy it again",
        reader.name(), found, what, bytes.size()));
  }
  return numbers;
}

// Returns the product of `dimensions`, or nullopt if no file can be that large.
std::optional<std::uint64_t> product(std::span<const std::uint32_t> dimensions) {
  std::uint64_t total = 1;
  for (const auto dimension : dimensions) {
    if (__builtin_mul_overflow(total, std::uint64_t{dimension}, &total)) return std::nullopt;
  }
  return total <= std::uint64_t{1} << 48 ? std::optional(total) : std::nullopt;
}

// Reads the bytes after the header. Their number must be the product of the dimensions. Memory grows with the
// bytes that exist, not with the declared size.
std::vector<std::uint8_t> read_body(ByteReader& reader, std::span<const std::uint32_t> dimensions) {
  const auto expected = product(dimensions);
  if (!expected || *expected == 0) {
    throw CorruptInput(
        fmt::format("{}: its header (offset 4) declares {}: no data set has that size; download it again",
                    reader.name(), fmt::join(dimensions, " x ")));
  }
  const auto header = reader.offset();
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < *expected) {
    const auto before = bytes.size();
    const auto step = std::max(chunk_bytes, before / 2);
    bytes.resize(before + static_cast<std::size_t>(std::min<std::uint64_t>(step, *expected - before)));
    const auto got = reader.read(std::span(bytes).subspan(before));
    if (before + got < bytes.size()) {
      throw CorruptInput(fmt::format(
          "{}: truncated at offset {}: {} ({} bytes) are declared, {} bytes found; download or copy it again",
          reader.name(), reader.offset(), fmt::join(dimensions, " x "), header + *expected, reader.offset()));
    }
  }
  std::uint8_t beyond = 0;  // Reading past the end also makes zlib verify the checksum.
  if (reader.read({&beyond, 1}) != 0) {
    throw CorruptInput(
        fmt::format("{}: there are more bytes at offset {}, where the declared {} end; download it again",
                    reader.name(), header + *expected, fmt::join(dimensions, " x ")));
  }
  return bytes;
}

}  // namespace

IdxImages read_idx_images(const std::filesystem::path& file) {
  ByteReader reader(file);
  const auto header = read_header<4>(reader, images_magic, "images");
  IdxImages images{.count = header[1], .rows = header[2], .columns = header[3], .pixels = {}};
  images.pixels = read_body(reader, std::span(header).subspan(1));
  return images;
}

std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& file, int classes) {
  ByteReader reader(file);
  const auto header = read_header<2>(reader, labels_magic, "labels");
  auto labels = read_body(reader, std::span(header).subspan(1));
  const auto bad = std::find_if(labels.begin(), labels.end(), [&](int label) { return label >= classes; });
  if (bad != labels.end()) {
    throw CorruptInput(fmt::format("{}: label {} at offset {}: labels are 0 to {}; download it again",
                                   reader.name(), *bad, 8 + (bad - labels.begin()), classes - 1));
  }
  return labels;
}

}  // namespace farandole
