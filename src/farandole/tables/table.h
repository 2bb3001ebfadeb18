// Tables: columns of equally many rows, in files that may be larger than memory.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/base/dtype.h"

namespace farandole {

struct DataColumn {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // Shape of one row; empty: one number.
  // Only for writing:
  bool text = false;                   // A text in UTF-8, in `shape` bytes (uint8), with zeros behind it.
  std::vector<std::string> classes{};  // Names of the classes whose outputs these are; an attribute in JSON.

  std::size_t row_bytes() const;
  // Size of so many rows; std::nullopt if a damaged shape gives more than any file can have.
  std::optional<std::uint64_t> bytes_for(std::int64_t rows) const;
};

// A column that is there and cannot be used.
struct UnusableColumn {
  std::string name;
  std::string reason;      // A sentence about it: "it has 5 rows, and the table has 20".
  bool damaged = false;    // Otherwise, what is wrong is the reader's or the user's.
  bool elsewhere = false;  // Its values are in another file, which is not read.
};

// A part of consecutive rows.
struct RowPiece {
  std::int64_t rows;
  std::byte* to;  // Memory for these rows, or nullptr to leave them out.
};

class DataTable {
 public:
  virtual ~DataTable() = default;

  const std::vector<DataColumn>& columns() const { return columns_; }
  std::int64_t rows() const { return rows_; }
  const std::string& source() const { return source_; }  // For messages.
  // Columns that cannot be read as numbers, such as text.
  const std::vector<std::string>& other_columns() const { return other_columns_; }
  // Calls `use` with the text of each row of one of the other columns, in order. Reads the file.
  // Throws: UserError if the column does not hold texts; CorruptInput if the data is damaged.
  virtual void read_text(const std::string& name, const std::function<void(std::string_view)>& use) const;
  // Columns with numbers that open_table() was not asked for.
  const std::vector<std::string>& unused_columns() const { return unused_columns_; }
  const std::vector<UnusableColumn>& unusable_columns() const { return unusable_columns_; }
  // The first place in one of the other columns that is no number: "line 3 has 'NA'". Empty if it is unknown.
  std::string first_text(const std::string& name) const;
  // What is strange about the files, for people. The caller writes them, on one rank.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Reads rows [first, first + count) of a column. `out` has count * row_bytes() bytes.
  // Throws: CorruptInput if the data is damaged.
  virtual void read(std::size_t column, std::int64_t first, std::int64_t count,
                    std::span<std::byte> out) const = 0;
  // Reads consecutive rows of a column from row `first` on, each piece into memory of its own. `scratch` is
  // memory that this call may use.
  // Throws: as read().
  virtual void read_pieces(std::size_t column, std::int64_t first, std::span<const RowPiece> pieces,
                           Bytes& scratch) const;
  // Returns how many rows the file holds together; 1 if any rows can be read alone.
  virtual std::int64_t chunk_rows(std::size_t column) const = 0;

  // Throws: UserError that names the columns that exist, if there is no such column, or the reason if it
  // cannot be used; CorruptInput if it is damaged.
  std::size_t index_of(const std::string& name) const;
  // Whether the files have such a column, also if open_table() was not asked for it.
  bool has(const std::string& name) const;

 protected:
  std::vector<std::string> names() const;
  // Adds what is not in the columns with numbers.
  void add_others(const DataTable& from);

  std::vector<DataColumn> columns_;
  std::vector<std::string> other_columns_, unused_columns_, warnings_;
  std::vector<UnusableColumn> unusable_columns_;
  std::map<std::string, std::string> first_texts_;  // By the name of the column.
  std::int64_t rows_ = 0;
  std::string source_;
};

// Copies rows that `read` puts into `scratch` to the pieces.
void copy_pieces(std::span<const RowPiece> pieces, std::size_t row_bytes, Bytes& scratch,
                 const std::function<void(std::int64_t rows, std::span<std::byte>)>& read);

// One file of a table. An empty name: as the file says.
struct TableFile {
  std::string name;
  std::filesystem::path file;
};
// Parses FILE,NAME=FILE,…. A text that is itself the path of a file stands for that file.
std::vector<TableFile> table_files(const std::string& files);
// Whether open_table() knows this kind of file, by its name or its content. False if there is no such file.
bool is_table(const std::filesystem::path& file);
bool is_hdf5(const std::filesystem::path& file);  // Also behind a user block, or by the name .h5 or .hdf5.
// The extension in small letters: ".csv" for UPPER.CSV.
std::string suffix_of(const std::filesystem::path& file);

// What happens to the columns of HDF5 files that open_table() was not asked for.
enum class OtherColumns { unused, kept };

// Opens an HDF5 file (each data set is a column), a CSV file with a header, a NumPy file
// (.npy), an IDX file (also .gz), or several of them joined by commas. The column of an .npy or IDX file has
// the name of the file without its extension; NAME=FILE gives it another one. CSV and IDX files are read into
// memory, others row by row. An HDF5 file may hold data sets with different numbers of rows: those of
// `columns` decide, or else the number that most columns have, of which those with many rows count more.
// Data sets with another number, and those that cannot be read, become unusable columns.
// Throws: UserError if a file cannot be opened, is of no known kind, has another number of rows than the
// others, or no column that can be used; CorruptInput with the file and the place if it is damaged.
std::shared_ptr<const DataTable> open_table(const std::string& files,
                                            const std::vector<std::string>& columns = {},
                                            OtherColumns others = OtherColumns::unused);
std::shared_ptr<const DataTable> open_table(const std::vector<TableFile>& files,
                                            const std::vector<std::string>& columns = {},
                                            OtherColumns others = OtherColumns::unused);

}  // namespace farandole
