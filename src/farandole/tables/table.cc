#include "farandole/tables/table.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

bool is_csv(const fs::path& file) {
  const auto suffix = suffix_of(file);
  return suffix == ".csv" || (suffix == ".gz" && suffix_of(file.stem()) == ".csv");
}

std::unique_ptr<DataTable> open_file(const fs::path& file, const std::vector<std::string>& columns,
                                     OtherColumns others) {
  if (!fs::exists(file)) throw UserError(fmt::format("there is no table {}", file.string()));
  if (fs::is_directory(file))
    throw UserError(fmt::format("{} is a folder; name the file of the table", file.string()));
  if (is_hdf5(file)) return open_hdf5_table(file, columns, others);
  if (suffix_of(file) == ".npy") return open_npy_table(file);
  if (is_csv(file)) return read_csv_table(file);
  if (is_idx_table(file)) return read_idx_table(file);
  constexpr std::string_view packed = ".gz.bz2.xz.zst.zip.lz4";
  const auto suffix = suffix_of(file);
  throw UserError(fmt::format(
      "{} is no table: tables are HDF5 (.h5), CSV (.csv, .csv.gz), NumPy (.npy) and IDX files{}",
      file.string(), suffix.size() > 2 && packed.find(suffix) != packed.npos ? "; unpack it" : ""));
}

// The columns of several tables side by side.
class JoinedTable final : public DataTable {
 public:
  void add(std::unique_ptr<DataTable> part, const std::string& name) {
    if (!name.empty() && part->columns().size() != 1)
      throw UserError(
          fmt::format("{} has {} columns and cannot be called {}; give a name to .npy and IDX files only",
                      part->source(), part->columns().size(), name));
    if (!columns_.empty() && part->rows() != rows_)
      throw UserError(
          fmt::format("{} has {} rows, and {} has {}; the files of a table must have equally many rows",
                      part->source(), part->rows(), source_, rows_));
    rows_ = part->rows();
    source_ += (source_.empty() ? "" : ",") + part->source();
    for (std::size_t i = 0; i < part->columns().size(); ++i) {
      auto column = part->columns()[i];
      if (!name.empty()) column.name = name;
      if (std::any_of(columns_.begin(), columns_.end(),
                      [&](const auto& other) { return other.name == column.name; }))
        throw UserError(fmt::format("{} has a second column {}; give it another name with NAME=FILE",
                                    part->source(), column.name));
      columns_.push_back(std::move(column));
      places_.emplace_back(parts_.size(), i);
    }
    add_others(*part);
    parts_.push_back(std::move(part));
  }

  void read(std::size_t column, std::int64_t first, std::int64_t count,
            std::span<std::byte> out) const override {
    const auto [part, index] = places_[column];
    parts_[part]->read(index, first, count, out);
  }
  void read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                   Bytes& scratch) const override {
    const auto [part, index] = places_[column];
    parts_[part]->read_pieces(index, first, pieces, scratch);
  }
  std::int64_t chunk_rows(std::size_t column) const override {
    const auto [part, index] = places_[column];
    return parts_[part]->chunk_rows(index);
  }
  void read_text(const std::string& name, const std::function<void(std::string_view)>& use) const override {
    for (const auto& part : parts_)
      if (std::ranges::count(part->other_columns(), name) > 0) return part->read_text(name, use);
    DataTable::read_text(name, use);
  }

 private:
  std::vector<std::unique_ptr<DataTable>> parts_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // part and column of each column
};

}  // namespace

std::size_t DataColumn::row_bytes() const {
  std::size_t elements = 1;
  for (const auto extent : shape) elements *= static_cast<std::size_t>(extent);
  return elements * size_of(dtype);
}

std::optional<std::uint64_t> DataColumn::bytes_for(std::int64_t rows) const {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  // Without rows, the extents must make sense too.
  bool too_many = __builtin_mul_overflow(bytes, std::max<std::int64_t>(rows, 1), &bytes);
  for (const auto extent : shape) too_many = __builtin_mul_overflow(bytes, extent, &bytes) || too_many;
  if (too_many) return std::nullopt;
  return rows == 0 ? 0 : static_cast<std::uint64_t>(bytes);
}

void copy_pieces(std::span<const RowPiece> pieces, std::size_t row_bytes, Bytes& scratch,
                 const std::function<void(std::int64_t rows, std::span<std::byte>)>& read) {
  std::int64_t rows = 0;
  for (const auto& piece : pieces) rows += piece.rows;
  scratch.resize(static_cast<std::size_t>(rows) * row_bytes);
  read(rows, scratch);
  const std::byte* from = scratch.data();
  for (const auto& piece : pieces) {
    const auto bytes = static_cast<std::size_t>(piece.rows) * row_bytes;
    if (piece.to != nullptr && bytes > 0) std::memcpy(piece.to, from, bytes);
    from += bytes;
  }
}

void DataTable::read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                            Bytes& scratch) const {
  const auto row_bytes = columns_[column].row_bytes();
  const auto read_rows = [&](std::int64_t rows, std::span<std::byte> out) { read(column, first, rows, out); };
  if (pieces.size() == 1)
    read_rows(pieces[0].rows, {pieces[0].to, static_cast<std::size_t>(pieces[0].rows) * row_bytes});
  else
    copy_pieces(pieces, row_bytes, scratch, read_rows);
}

void DataTable::read_text(const std::string& name, const std::function<void(std::string_view)>&) const {
  throw UserError(fmt::format("column {} of {} does not hold texts", name, source_));
}

std::vector<std::string> DataTable::names() const {
  auto names = unused_columns_;
  for (const auto& column : columns_) names.push_back(column.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string DataTable::first_text(const std::string& name) const {
  const auto known = first_texts_.find(name);
  return known == first_texts_.end() ? "" : known->second;
}

void DataTable::add_others(const DataTable& from) {
  const auto append = [](auto& to, const auto& more) { to.insert(to.end(), more.begin(), more.end()); };
  append(other_columns_, from.other_columns_);
  append(unused_columns_, from.unused_columns_);
  append(unusable_columns_, from.unusable_columns_);
  append(warnings_, from.warnings_);
  first_texts_.insert(from.first_texts_.begin(), from.first_texts_.end());
}

bool DataTable::has(const std::string& name) const {
  const auto all = names();
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::size_t DataTable::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].name == name) return i;
  if (std::find(other_columns_.begin(), other_columns_.end(), name) != other_columns_.end()) {
    const auto text = first_text(name);
    throw UserError(fmt::format("column {} of {} does not hold numbers{}; the columns with numbers are {}",
                                name, source_, text.empty() ? "" : ": " + text + "; correct the table",
                                fmt::join(names(), ", ")));
  }
  for (const auto& column : unusable_columns_)
    if (column.name == name) {
      const auto text = fmt::format("column {} of {} cannot be used: {}", name, source_, column.reason);
      if (column.damaged) throw CorruptInput(text);
      throw UserError(text);
    }
  const auto nearest = nearest_name(name, names());
  throw UserError(fmt::format("{} has no column {}{}; its columns are {}", source_, name,
                              nearest.empty() ? "" : ", did you mean " + nearest + "?",
                              fmt::join(names(), ", ")));
}

std::vector<TableFile> table_files(const std::string& files) {
  if (fs::exists(files)) return {{"", files}};
  std::vector<TableFile> result;
  for (std::size_t begin = 0; begin <= files.size();) {
    const auto end = std::min(files.find(',', begin), files.size());
    const auto word = files.substr(begin, end - begin);
    const auto equals = word.find('=');
    if (equals == word.npos || fs::exists(word))
      result.push_back({"", word});
    else
      result.push_back({word.substr(0, equals), word.substr(equals + 1)});
    begin = end + 1;
  }
  return result;
}

bool is_table(const fs::path& file) {
  return fs::is_regular_file(file) &&
         (is_hdf5(file) || suffix_of(file) == ".npy" || is_csv(file) || is_idx_table(file));
}

std::string suffix_of(const fs::path& file) {
  auto suffix = file.extension().string();
  for (char& c : suffix)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return suffix;
}

std::shared_ptr<const DataTable> open_table(const std::string& files, const std::vector<std::string>& columns,
                                            OtherColumns others) {
  return open_table(table_files(files), columns, others);
}

std::shared_ptr<const DataTable> open_table(const std::vector<TableFile>& files,
                                            const std::vector<std::string>& columns, OtherColumns others) {
  auto table = std::make_unique<JoinedTable>();
  for (const auto& [name, file] : files) table->add(open_file(file, columns, others), name);
  if (!table->columns().empty() || !columns.empty()) return table;
  const auto text = fmt::format("{} has no column with numbers", table->source());
  if (table->unusable_columns().empty()) {
    const auto& texts = table->other_columns();
    const auto first_text = texts.empty() ? "" : table->first_text(texts.front());
    throw UserError(first_text.empty() ? text
                                       : fmt::format("{}: column {}: {}", text, texts.front(), first_text));
  }
  const auto& first = table->unusable_columns().front();
  throw CorruptInput(
      fmt::format("{} that can be used, or is damaged: {}: {}", text, first.name, first.reason));
}

}  // namespace farandole
