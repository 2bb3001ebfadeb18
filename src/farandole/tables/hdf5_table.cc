#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

// The type in which values reach the reader. Integers that DType lacks are widened, and short ones, because
// losses take classes as int64.
DType memory_type(const Hdf5Dataset& data) {
  const auto stored = data.dtype();
  if (stored && *stored != DType::int8 && *stored != DType::int16) return *stored;
  return data.kind() == Hdf5Dataset::Kind::integer ? DType::int64 : DType::float64;
}

// netCDF keeps the length of a dimension as a data set without values.
bool is_netcdf_dimension(const Hdf5Dataset& data) {
  return data.string_attribute("NAME").value_or("").starts_with(
      "This is a netCDF dimension but not a netCDF variable");
}

// The number of rows that most columns have. Those with many rows count more: they are the table rather than
// means or axes beside it.
std::int64_t rows_of_most(const std::vector<Hdf5Dataset>& columns) {
  std::map<std::int64_t, double> weights;
  for (const auto& column : columns)
    weights[column.rows()] += std::log2(1 + static_cast<double>(column.rows()));
  std::pair<std::int64_t, double> most{0, 0};
  for (const auto& candidate : weights)
    if (candidate.second >= most.second) most = candidate;
  return most.first;
}

class Hdf5Table final : public DataTable {
 public:
  Hdf5Table(const std::filesystem::path& path, const std::vector<std::string>& wanted, OtherColumns others)
      : file_(Hdf5File::open(path)), fd_(open_regular_file(path)) {
    source_ = path.string();
    if (fd_.get() < 0) throw system_error("open", source_);
    const auto is_wanted = [&](const Hdf5Dataset& data) {
      return std::ranges::count(wanted, name_of_column(data)) > 0;
    };
    auto columns = numbers_in_file();
    std::vector<Hdf5Dataset> deciding;
    std::ranges::copy_if(columns, std::back_inserter(deciding), is_wanted);
    for (const auto& data : deciding)
      if (data.rows() != deciding.front().rows())
        throw UserError(fmt::format(
            "{}: column {} has {} rows, and column {} has {}; all columns of a table must have equally many rows",
            source_, name_of_column(data), data.rows(), name_of_column(deciding.front()),
            deciding.front().rows()));
    rows_ = rows_of_most(deciding.empty() ? columns : deciding);
    const auto file_bytes = std::filesystem::file_size(path);
    for (auto& data : columns) {
      if (!wanted.empty() && others == OtherColumns::unused && !is_wanted(data))
        unused_columns_.push_back(name_of_column(data));
      else if (data.rows() != rows_)
        unusable_columns_.push_back(
            {name_of_column(data), fmt::format("it has {} row{}, and the table has {}", data.rows(),
                                               data.rows() == 1 ? "" : "s", rows_)});
      else
        add(std::move(data), file_bytes);
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
  static std::string name_of_column(const Hdf5Dataset& data) { return data.path().substr(1); }

  // Returns the data sets of numbers, and notes all others.
  std::vector<Hdf5Dataset> numbers_in_file() {
    std::vector<Hdf5Problem> problems;
    std::vector<Hdf5Dataset> columns;
    for (auto& data : file_.datasets(problems)) {
      try {
        if (data.kind() == Hdf5Dataset::Kind::other || data.shape().empty())
          other_columns_.push_back(name_of_column(data));
        else if (is_netcdf_dimension(data))
          unusable_columns_.push_back({name_of_column(data), "it is a dimension of netCDF without values"});
        else
          columns.push_back(std::move(data));
      } catch (const CorruptInput& error) {
        problems.push_back({data.path(), error.what(), true});
      }
    }
    for (auto& problem : problems)
      unusable_columns_.push_back({problem.path.substr(problem.path.starts_with('/') ? 1 : 0),
                                   std::move(problem.reason), problem.damaged, problem.elsewhere});
    return columns;
  }

  void add(Hdf5Dataset data, std::uintmax_t file_bytes) {
    const auto& shape = data.shape();
    DataColumn column{name_of_column(data), memory_type(data), {shape.begin() + 1, shape.end()}};
    // A damaged shape must not make a reader ask for more memory than there is.
    constexpr std::uintmax_t densest_packing = 2048;  // Twice the best compression ratio of deflate.
    if (const auto bytes = column.bytes_for(rows_); !bytes || *bytes / densest_packing > file_bytes) {
      unusable_columns_.push_back(
          {column.name,
           fmt::format(
               "it declares {} rows of shape [{}], which do not fit into a file of {} bytes; write the file again",
               rows_, fmt::join(column.shape, ", "), file_bytes),
           true});
      return;
    }
    columns_.push_back(std::move(column));
    data_.push_back({std::move(data), std::nullopt});
    const bool as_stored = data_.back().data.dtype() == columns_.back().dtype;
    if (const auto offset = data_.back().data.offset(); offset && as_stored)
      data_.back().rows.emplace(fd_.get(), *offset, columns_.back().row_bytes(), source_);
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
  if (const auto suffix = suffix_of(file); suffix == ".h5" || suffix == ".hdf5") return true;
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
                                           const std::vector<std::string>& columns, OtherColumns others) {
  return std::make_unique<Hdf5Table>(file, columns, others);
}

}  // namespace farandole
