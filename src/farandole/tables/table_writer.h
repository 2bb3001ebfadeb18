// Writes a table, or some of its rows, as an HDF5 file, by rows, from one process or from several at once.
// Thread safety: any thread may call this at any time. Two threads may not write the same rows of a column.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/tables/row_selection.h"
#include "farandole/tables/table.h"

namespace farandole {

// Creates `file` with empty columns and the columns of `original` that do not hold numbers, if it is an HDF5
// file ("" if there is none). Returns where in the file each column begins. Other processes that share the
// file system may then make a TableWriter.
// Throws: Error if the file cannot be written or there is too little space for it.
std::vector<std::uint64_t> create_table_file(const std::filesystem::path& file,
                                             const std::vector<DataColumn>& columns, std::int64_t rows,
                                             const std::string& original = {},
                                             const std::vector<std::string>& other_columns = {});

class TableWriter {
 public:
  TableWriter(const std::filesystem::path& file, std::vector<DataColumn> columns,
              std::vector<std::uint64_t> offsets);
  // Writes rows from number `first` on.
  // Throws: Error if this fails, for example on a full disk.
  void write(std::size_t column, std::int64_t first, std::span<const std::byte> rows) const;
  void sync() const { file_.sync(); }

 private:
  RawData file_;
  std::vector<DataColumn> columns_;
  std::vector<std::uint64_t> offsets_;
};

// Writes the rows of the selection in their order, all columns with numbers, as an HDF5 file that appears
// when it is complete. Returns their number.
// Throws: Error if it cannot be written.
std::int64_t write_rows(const DataTable& table, const RowSelection& selection,
                        const std::filesystem::path& file);

}  // namespace farandole
