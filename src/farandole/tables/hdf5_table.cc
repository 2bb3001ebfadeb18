#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <string_view>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

// The type in which values reach the reader. Integers that DType lacks are widened.
DType memory_type(const Hdf5Dataset& data) {
  if (data.dtype()) return *data.dtype();
  return data.kind() == Hdf5Dataset::Kind::integer ? DType::int64 : DType::float64;
}

class Hdf5Table final : public DataTable {
 public:
  Hdf5Table(const std::filesystem::path& path, const std::vector<std::string>& columns)
      : file_(Hdf5File::open(path)), fd_(open_regular_file(path)) {
    source_ = path.string();
    if (fd_.get() < 0) throw system_error("open", source_);
    for (auto& data : file_.datasets()) {
      const auto name = data.path().substr(1);
      if (data.kind() == Hdf5Dataset::Kind::other || data.shape().empty()) {
        other_columns_.push_back(name);
        continue;
      }
      if (!columns.empty() && std::ranges::count(columns, name) == 0) {
        unused_columns_.push_back(name);
        continue;
      }
      const auto& shape = data.shape();
      if (!columns_.empty() && data.rows() != rows_)
        throw UserError(
            fmt::format("{}: column {} has {} rows, and column {} has {}; all columns of a table must have "
                        "equally many rows",
                        source_, name, data.rows(), columns_.front().name, rows_));
      rows_ = data.rows();
      columns_.push_back({name, memory_type(data), {shape.begin() + 1, shape.end()}});
      check_size(columns_.back(), std::filesystem::file_size(path));
      data_.push_back({std::move(data), std::nullopt});
      if (const auto offset = data_.back().data.offset())
        data_.back().rows.emplace(fd_.get(), *offset, columns_.back().row_bytes(), source_);
    }
  }

  void read(std::size_t column, std::int64_t first, std::int64_t count,
            std::span<std::byte> out) const override {
    const auto& [data, rows] = data_[column];
    if (rows)
      rows->read(first, out);
    else
      data.read_rows(first, count, columns_[column].dtype, out);
  }
  void read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                   Bytes& scratch) const override {
    if (const auto& rows = data_[column].rows)
      rows->read_pieces(first, pieces, scratch);
    else
      DataTable::read_pieces(column, first, pieces, scratch);
  }
  std::int64_t chunk_rows(std::size_t column) const override { return data_[column].data.chunk_rows(); }
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) const override {
    constexpr std::int64_t rows_at_once = 65536;
    const auto data = file_.dataset("/" + name);
    if (data.rows() != rows_)
      throw UserError(
          fmt::format("{}: column {} has {} rows, and the table has {}", source_, name, data.rows(), rows_));
    for (std::int64_t first = 0; first < rows_; first += rows_at_once)
      data.read_texts(first, std::min(rows_at_once, rows_ - first), use);
  }

 private:
  // A damaged shape must not make a reader ask for more memory than there is.
  void check_size(const DataColumn& column, std::uintmax_t file_bytes) const {
    constexpr std::uintmax_t densest_packing = 2048;  // Twice the best compression ratio of deflate.
    const auto bytes = column.bytes_of(rows_);
    if (!bytes || *bytes / densest_packing > file_bytes)
      throw CorruptInput(fmt::format(
          "{}: column {} declares {} rows of shape [{}], which do not fit into a file of {} bytes; write the "
          "file again",
          source_, column.name, rows_, fmt::join(column.shape, ", "), file_bytes));
  }

  struct Column {
    Hdf5Dataset data;
    std::optional<FileColumn> rows;  // If HDF5 need neither find nor convert them.
  };
  Hdf5File file_;
  OwnedDescriptor fd_;
  std::vector<Column> data_;
};

}  // namespace

bool is_hdf5(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return false;
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

std::unique_ptr<DataTable> open_hdf5_table(const std::filesystem::path& file,
                                           const std::vector<std::string>& columns) {
  return std::make_unique<Hdf5Table>(file, columns);
}

}  // namespace farandole
