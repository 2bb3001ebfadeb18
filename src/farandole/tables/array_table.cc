// Arrays of numbers as tables with one column: NumPy's .npy, read row by row, and IDX, read into memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <zlib.h>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::string column_name(const fs::path& file) {
  auto name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.extension() == ".npy" ? name.stem() : name;
}

// Returns the text after "'KEY':" in the header of an .npy file, which is a dictionary in Python's notation.
std::string_view value_in_header(std::string_view header, std::string_view key) {
  const auto at = header.find(fmt::format("'{}':", key));
  if (at == header.npos) return {};
  header.remove_prefix(at + key.size() + 3);
  return header.substr(std::min(header.find_first_not_of(' '), header.size()));
}

std::optional<DType> npy_type(std::string_view description) {
  using Entry = std::pair<std::string_view, DType>;
  constexpr Entry known[] = {{"'<f2'", DType::float16}, {"'<f4'", DType::float32}, {"'<f8'", DType::float64},
                             {"'<i4'", DType::int32},   {"'<i8'", DType::int64},   {"'|u1'", DType::uint8},
                             {"'|b1'", DType::boolean}, {"'|i1'", DType::int8},    {"'<i2'", DType::int16}};
  for (const auto& [text, dtype] : known)
    if (description.starts_with(text)) return dtype;
  return std::nullopt;
}

// Reads the numbers of "(3, 28, 28)".
std::optional<std::vector<std::int64_t>> npy_shape(std::string_view text) {
  if (!text.starts_with('(') || text.find(')') == text.npos) return std::nullopt;
  text = text.substr(1, text.find(')') - 1);
  std::vector<std::int64_t> shape;
  while (!text.empty()) {
    auto word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    if (word.empty()) continue;
    const auto number = parse_number<std::int64_t>(word);
    if (!number || *number < 0) return std::nullopt;
    shape.push_back(*number);
  }
  return shape;
}

class NpyTable final : public DataTable {
 public:
  explicit NpyTable(const fs::path& file) : fd_(open_regular_file(file)) {
    source_ = file.string();
    if (fd_.get() < 0) throw UserError(fmt::format("cannot open {}: {}", source_, std::strerror(errno)));
    std::array<char, 12> start{};
    const auto got = read_bytes(fd_.get(), 0, std::as_writable_bytes(std::span(start)), source_);
    if (got < start.size() || std::string_view(start.data(), 6) != "\x93NUMPY")
      throw CorruptInput(source_ + " is not a NumPy file; write it with numpy.save");
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(start[i]));
    };
    const bool old = start[6] == 1;
    const auto size = old ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
    const auto offset = (old ? 10 : 12) + size;
    constexpr std::size_t largest_header = 65536;
    std::string header(std::min(size, largest_header), '\0');
    if (read_bytes(fd_.get(), offset - size, std::as_writable_bytes(std::span(header)), source_) <
        header.size())
      throw CorruptInput(source_ + " ends within its header; write it again with numpy.save");
    const auto description = value_in_header(header, "descr");
    const auto type = npy_type(description);
    if (!type)
      throw UserError(fmt::format(
          "{}: the type {} cannot be read; use float16, float32, float64, int8, int16, int32, int64, "
          "uint8 or bool, in little-endian order",
          source_, description.substr(0, description.find(','))));
    if (!value_in_header(header, "fortran_order").starts_with("False"))
      throw UserError(source_ +
                      " is in Fortran order; write it with numpy.save(file, numpy.ascontiguousarray(array))");
    const auto shape = npy_shape(value_in_header(header, "shape"));
    if (!shape || shape->empty())
      throw UserError(source_ + " has no rows: its array must have at least one dimension");
    rows_ = shape->front();
    columns_ = {{column_name(file), *type, {shape->begin() + 1, shape->end()}}};
    const auto data = columns_.front().bytes_for(rows_);
    if (!data) throw CorruptInput(source_ + " has an impossible shape; copy it again");
    if (const auto there = fs::file_size(file); there < offset + *data)
      throw CorruptInput(
          fmt::format("{}: truncated at offset {}: its header declares {} bytes; copy it again", source_,
                      there, offset + *data));
    rows_in_file_.emplace(fd_.get(), offset, columns_.front().row_bytes(), source_);
  }

  void read(std::size_t, std::int64_t first, std::int64_t, std::span<std::byte> out) const override {
    rows_in_file_->read(first, out);
  }
  void read_pieces(std::size_t, std::int64_t first, std::span<const RowPiece> pieces,
                   Bytes& scratch) const override {
    rows_in_file_->read_pieces(first, pieces, scratch);
  }
  std::int64_t chunk_rows(std::size_t) const override { return 1; }

 private:
  OwnedDescriptor fd_;
  std::optional<FileColumn> rows_in_file_;
};

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

// Reads the whole file, plain or compressed. Memory grows with the bytes that there are.
std::vector<std::byte> read_gz(const fs::path& file,
                               std::size_t most = std::numeric_limits<std::size_t>::max()) {
  errno = 0;
  const std::unique_ptr<gzFile_s, CloseGz> gz(gzopen(file.c_str(), "rb"));
  if (!gz) throw UserError(fmt::format("cannot open {}: {}", file.string(), std::strerror(errno)));
  std::vector<std::byte> bytes;
  for (int got = 1; got > 0 && bytes.size() < most;) {
    const auto size = bytes.size();
    bytes.resize(size + std::min<std::size_t>(std::max<std::size_t>(size, 4096), std::size_t{1} << 28));
    got = gzread(gz.get(), bytes.data() + size, static_cast<unsigned>(bytes.size() - size));
    bytes.resize(size + static_cast<std::size_t>(std::max(got, 0)));
  }
  int code = Z_OK;
  const char* text = gzerror(gz.get(), &code);
  if (code != Z_OK && code != Z_STREAM_END)
    throw CorruptInput(fmt::format("{}: damaged after {} unpacked bytes ({}); copy it again", file.string(),
                                   bytes.size(), code == Z_BUF_ERROR ? "it ends early" : text));
  return bytes;
}

struct IdxHeader {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;  // of the header
};

std::optional<IdxHeader> idx_header(std::span<const std::byte> file) {
  if (file.size() < 8 || file[0] != std::byte{0} || file[1] != std::byte{0}) return std::nullopt;
  IdxHeader header;
  switch (std::to_integer<int>(file[2])) {
    case 0x08:
      header.dtype = DType::uint8;
      break;
    case 0x0C:
      header.dtype = DType::int32;
      break;
    case 0x0D:
      header.dtype = DType::float32;
      break;
    case 0x0E:
      header.dtype = DType::float64;
      break;
    default:
      return std::nullopt;
  }
  const auto dimensions = std::to_integer<std::size_t>(file[3]);
  header.bytes = 4 + 4 * dimensions;
  if (dimensions == 0 || dimensions > 8 || file.size() < header.bytes) return std::nullopt;
  for (std::size_t i = 4; i < header.bytes; i += 4) {
    std::int64_t extent = 0;
    for (std::size_t k = 0; k < 4; ++k) extent = extent << 8 | std::to_integer<std::int64_t>(file[i + k]);
    header.shape.push_back(extent);
  }
  return header;
}

}  // namespace

std::unique_ptr<DataTable> open_npy_table(const fs::path& file) {
  return std::make_unique<NpyTable>(file);
}

bool is_idx_table(const fs::path& file) {
  return idx_header(read_gz(file, 64)).has_value();
}

std::unique_ptr<DataTable> read_idx_table(const fs::path& file) {
  auto bytes = read_gz(file);
  const auto header = idx_header(bytes);
  if (!header)
    throw CorruptInput(file.string() + " is not an IDX file of bytes, int32 or floating-point numbers");
  const DataColumn column{column_name(file), header->dtype, {header->shape.begin() + 1, header->shape.end()}};
  const auto data = column.bytes_for(header->shape.front());
  if (!data) throw CorruptInput(file.string() + " has an impossible shape; copy it again");
  if (bytes.size() != header->bytes + *data)
    throw CorruptInput(fmt::format("{}: its header declares {} bytes, and it has {}; copy it again",
                                   file.string(), header->bytes + *data, bytes.size()));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header->bytes));
  if (const auto size = size_of(header->dtype); size > 1 && std::endian::native == std::endian::little)
    for (std::size_t i = 0; i < bytes.size(); i += size)
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                   bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
  auto table = std::make_unique<MemoryTable>(file.string(), header->shape.front());
  table->add(column, std::move(bytes));
  return table;
}

}  // namespace farandole
