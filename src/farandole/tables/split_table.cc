#include "farandole/tables/split_table.h"

#include <numeric>

#include "farandole/base/files/atomic_file.h"
#include "farandole/tables/table_reader.h"
#include "farandole/tables/table_writer.h"

namespace farandole {

std::int64_t write_rows(const DataTable& table, const RowSelection& selection,
                        const std::filesystem::path& file) {
  TableReaderOptions options;
  options.shuffle = false;
  options.columns.resize(table.columns().size());
  std::iota(options.columns.begin(), options.columns.end(), std::size_t{0});
  TableReader reader(table, selection, options);
  AtomicFile written(file);
  const auto offsets = create_table_file(written.temporary(), table.columns(), reader.rows());
  const TableWriter writer(written.temporary(), table.columns(), offsets);
  std::int64_t row = 0;
  reader.start(0);
  while (const auto batch = reader.next()) {
    for (std::size_t i = 0; i < batch->columns.size(); ++i) writer.write(i, row, *batch->columns[i]);
    row += static_cast<std::int64_t>(batch->rows.size());
  }
  written.publish();
  return row;
}

}  // namespace farandole
