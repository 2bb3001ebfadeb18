// Writes a table in the format that the suffix of its file names.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/tables/class_columns.h"
#include "farandole/tables/row_selection.h"
#include "farandole/tables/table.h"

namespace farandole {

enum class TableFormat { hdf5, csv, npy };

// For the copy of a table, which lacks these columns. A program writes this once, before the copy.
// Throws: UserError if the values of one of them are in another file. They never get into a copy.
void warn_of_unusable_columns(const DataTable& table);

// By the suffix: .h5 or .hdf5, .csv, .npy.
// Throws: UserError for any other suffix.
TableFormat format_of_output(const std::filesystem::path& file);

// Writes the rows of the selection in their order to a file that appears when it is complete. Returns their
// number. HDF5 gets all columns with numbers. CSV gets all columns with texts, which must fit into memory,
// and those with numbers. A column with several values in a row becomes the columns NAME_0, NAME_1, …, and a
// NaN an empty field. For columns in `classes`, the names of the classes are written. NumPy holds one column.
// Throws: UserError as format_of_output(), or if the format cannot hold the table; Error if writing fails.
std::int64_t export_rows(const DataTable& table, const RowSelection& selection,
                         const std::filesystem::path& file, const ClassNames& classes = {});

}  // namespace farandole
