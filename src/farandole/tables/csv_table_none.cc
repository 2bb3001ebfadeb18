// For builds without libcsv.
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/tables/formats.h"

namespace farandole {

std::unique_ptr<DataTable> read_csv_table(const std::filesystem::path& file) {
  throw UserError(fmt::format(
      "{} is a CSV file, and this Farandole was built without libcsv; install libcsv and build again, or "
      "write the table as HDF5",
      file.string()));
}

}  // namespace farandole
