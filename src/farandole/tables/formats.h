// The readers of each kind of file; open_table() chooses among them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "farandole/tables/table.h"

namespace farandole {

// Without `columns`, every data set of numbers is a column.
// Throws: UserError if columns have different numbers of rows.
std::unique_ptr<DataTable> open_hdf5_table(const std::filesystem::path& file,
                                           const std::vector<std::string>& columns);
// Types are found from the values: a column is int64 if all are whole numbers, float64 if all are numbers (an
// empty field is NaN), and text otherwise. Throws: CorruptInput with the line and the column.
std::unique_ptr<DataTable> read_csv_table(const std::filesystem::path& file);
std::unique_ptr<DataTable> open_npy_table(const std::filesystem::path& file);
bool is_idx_table(const std::filesystem::path& file);
std::unique_ptr<DataTable> read_idx_table(const std::filesystem::path& file);

}  // namespace farandole
