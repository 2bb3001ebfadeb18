// Writes some rows of a table to a file.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/tables/row_selection.h"
#include "farandole/tables/table.h"

namespace farandole {

// Writes the rows of the selection in their order, all columns with numbers, as an HDF5 file that appears
// when it is complete. Returns their number.
// Throws: Error if it cannot be written.
std::int64_t write_rows(const DataTable& table, const RowSelection& selection,
                        const std::filesystem::path& file);

}  // namespace farandole
