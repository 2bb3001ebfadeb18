#include "farandole/tables/table_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <numeric>
#include <sys/statvfs.h>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/phrases.h"
#include "farandole/checkpoint/hdf5_handle.h"
#include "farandole/checkpoint/hdf5_types.h"
#include "farandole/tables/table_reader.h"

namespace farandole {
namespace {

void require_space(const std::filesystem::path& file, const std::vector<DataColumn>& columns,
                   std::int64_t rows) {
  std::uint64_t bytes = 0;
  for (const auto& column : columns) bytes += column.row_bytes() * static_cast<std::uint64_t>(rows);
  struct statvfs status {};
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (::statvfs(folder.c_str(), &status) != 0) throw system_error("look at", folder.string());
  const auto free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  if (free < bytes)
    throw Error(fmt::format("{} needs {}, and {} has only {} left; free some space", file.string(),
                            describe_bytes(static_cast<std::int64_t>(bytes)), folder.string(),
                            describe_bytes(static_cast<std::int64_t>(free))));
}

void write_classes(hid_t column, const std::vector<std::string>& classes, const Hdf5Check& check) {
  const auto text = exact_json_text(classes);
  const auto type = string_type(text.size(), check);
  const auto space = check(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate");
  const auto attribute =
      check(H5Acreate2(column, "classes", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
            "write attribute classes");
  check(H5Awrite(attribute.get(), type.get(), text.data()), "write attribute classes");
}

}  // namespace

std::vector<std::uint64_t> create_table_file(const std::filesystem::path& file,
                                             const std::vector<DataColumn>& columns, std::int64_t rows,
                                             const std::string& original,
                                             const std::vector<std::string>& other_columns) {
  require_space(file, columns, rows);
  const Hdf5Lock lock;
  const Hdf5Check check(file.string(), ExitCode::failure);
  const auto access = check(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  // The copied columns may have a later format.
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST), "H5Pset_libver_bounds");
  check(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG), "H5Pset_fclose_degree");  // As Hdf5File has it.
  check(H5Pset_file_locking(access.get(), false, true), "H5Pset_file_locking");
  auto target = check(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, "create");
  const auto links = check(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "H5Pcreate");
  check(H5Pset_create_intermediate_group(links.get(), 1), "H5Pset_create_intermediate_group");
  // The space is reserved now, and the bytes are written without HDF5, which cannot close a file on
  // a full disk.
  const auto creation = check(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
  check(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
  check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
  std::vector<std::uint64_t> offsets;
  for (const auto& column : columns) {
    std::vector<hsize_t> shape{static_cast<hsize_t>(rows)};
    if (!column.text) shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    const auto space = check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                             H5Sclose, "H5Screate_simple");
    const auto type = column.text ? string_type(column.row_bytes(), check) : stored_type(column.dtype, check);
    const auto data = check(H5Dcreate2(target.get(), column.name.c_str(), type.get(), space.get(),
                                       links.get(), creation.get(), H5P_DEFAULT),
                            H5Dclose, "create column " + column.name);
    if (!column.text) write_dtype(data.get(), column.dtype, check);
    if (!column.classes.empty()) write_classes(data.get(), column.classes, check);
    offsets.push_back(H5Dget_offset(data.get()));
  }
  if (!other_columns.empty()) {
    const auto source =
        check(H5Fopen(original.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "open " + original);
    for (const auto& name : other_columns)
      check(H5Ocopy(source.get(), name.c_str(), target.get(), name.c_str(), H5P_DEFAULT, links.get()),
            "copy column " + name);
  }
  check(target.close(), "close");
  return offsets;
}

TableWriter::TableWriter(const std::filesystem::path& file, std::vector<DataColumn> columns,
                         std::vector<std::uint64_t> offsets)
    : file_(file.string(), O_WRONLY), columns_(std::move(columns)), offsets_(std::move(offsets)) {}

void TableWriter::write(std::size_t column, std::int64_t first, std::span<const std::byte> rows) const {
  file_.write(offsets_[column] + static_cast<std::uint64_t>(first) * columns_[column].row_bytes(), rows);
}

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
