// HDF5 files of other programs: what of them can be read is a table, and the rest is named.
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <span>

#include "error_message.h"
#include "tables/read_column.h"

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_handle.h"
#include "farandole/checkpoint/hdf5_types.h"
#include "farandole/tables/table_export.h"
#include "farandole/tables/table_writer.h"

namespace farandole {
namespace {

using namespace ::testing;

constexpr hsize_t rows_of_x = 20;

// Writes a file with x [20, 3] and y [20], and whatever a test adds.
class Hdf5Tables : public testing::Test {
 protected:
  using Properties = std::function<void(hid_t)>;

  hid_t create(const Properties& of_creation = {}, const Properties& of_access = {}) {
    const auto creation = check_(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "creation");
    const auto access = check_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "access");
    if (of_creation) of_creation(creation.get());
    if (of_access) of_access(access.get());
    file_ = check_(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, "create");
    std::vector<float> x(rows_of_x * 3);
    std::vector<std::int64_t> y(rows_of_x);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int64_t>(i % 4);
    add("x", {rows_of_x, 3}, H5T_NATIVE_FLOAT, x.data());
    add("y", {rows_of_x}, H5T_NATIVE_INT64, y.data());
    return file_.get();
  }
  // Without `values`, nothing is written.
  Hdf5Handle add(const char* name, std::vector<hsize_t> shape, hid_t type, const void* values,
                 const Properties& of_creation = {}) {
    const auto creation = check_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "creation");
    if (of_creation) of_creation(creation.get());
    const auto links = check_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "links");
    H5Pset_create_intermediate_group(links.get(), 1);
    const auto space =
        check_(shape.empty() ? H5Screate(H5S_NULL)
                             : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
               H5Sclose, "space");
    auto data =
        check_(H5Dcreate2(file_.get(), name, type, space.get(), links.get(), creation.get(), H5P_DEFAULT),
               H5Dclose, "data set");
    if (values != nullptr) check_(H5Dwrite(data.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write");
    return data;
  }
  Hdf5Handle group(const char* name) {
    return check_(H5Gcreate2(file_.get(), name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "group");
  }
  std::string path() const { return path_.string(); }

  // The table of x and y, which must be read rightly.
  std::shared_ptr<const DataTable> opened() {
    file_.close();
    auto table = open_table(path());
    EXPECT_EQ(table->rows(), 20);
    EXPECT_EQ(read_column<float>(*table, "x")[59], 59);
    EXPECT_EQ(read_column<std::int64_t>(*table, "y")[19], 3);
    return table;
  }
  static std::string reason_of(const DataTable& table, const std::string& name) {
    for (const auto& column : table.unusable_columns())
      if (column.name == name) return column.reason;
    return "it is usable";
  }

  const Hdf5Lock lock_;
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "t.h5";
  const Hdf5Check check_{path_.string(), ExitCode::failure};
  Hdf5Handle file_;
};

TEST_F(Hdf5Tables, TheLatestFormatIsRead) {
  create({}, [](hid_t access) { H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST); });
  EXPECT_EQ(opened()->columns().size(), 2u);
}

// Data sets in it begin later by the length of the block.
TEST_F(Hdf5Tables, AFileWithAUserBlockIsReadByAnyName) {
  create([](hid_t creation) { H5Pset_userblock(creation, 2048); });
  opened();
  std::ofstream(path_, std::ios::in | std::ios::out) << "MATLAB 7.3 MAT-file";
  const auto mat = folder_ / "x.mat";
  std::filesystem::rename(path_, mat);
  EXPECT_TRUE(is_table(mat));
  const auto table = open_table(mat.string());
  EXPECT_EQ(read_column<float>(*table, "x")[59], 59);
  EXPECT_EQ(read_column<std::int64_t>(*table, "y")[19], 3);
}

TEST_F(Hdf5Tables, LinksThatLeadNowhereAreNamed) {
  const auto file = create();
  group("g");
  H5Lcreate_soft("/gone", file, "dangling", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/loop2", file, "loop", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/loop", file, "loop2", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external("part\x1b.h5", "/x", file, "g/outside", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/g/outside", file, "to_outside", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_hard(file, "/g", file, "g/again", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/", file, "g/root", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/y", file, "g/label", H5P_DEFAULT, H5P_DEFAULT);
  const auto table = opened();
  EXPECT_EQ(reason_of(*table, "dangling"), "it is a link to /gone, which is not in this file");
  EXPECT_THAT(reason_of(*table, "loop"), HasSubstr("/loop2"));
  EXPECT_EQ(reason_of(*table, "g/outside"),
            "it is a link to another file, part?.h5; copy the data into this file");
  EXPECT_THAT(reason_of(*table, "to_outside"), HasSubstr("/g/outside, which is not in this file"));
  EXPECT_EQ(reason_of(*table, "g/again"), "it is the group /g again");
  EXPECT_EQ(reason_of(*table, "g/root"), "it is the group / again");
  EXPECT_EQ(read_column<std::int64_t>(*table, "g/label")[19], 3);
  EXPECT_EQ(
      message_of<UserError>([&] { table->index_of("dangling"); }),
      "column dangling of " + path() + " cannot be used: it is a link to /gone, which is not in this file");
}

// The other file is there, so HDF5 would read it, with the offset of its data in the first file.
TEST_F(Hdf5Tables, ALinkToAnotherFileIsNotFollowed) {
  create();
  const auto part = folder_ / "part.h5";
  file_.close();
  std::filesystem::rename(path_, part);
  const auto file = create();
  H5Lcreate_external("part.h5", "/x", file, "linked", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external("part.h5", "/", file, "all", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/all/x", file, "by_soft_link", H5P_DEFAULT, H5P_DEFAULT);
  const auto table = opened();
  EXPECT_EQ(table->columns().size(), 2u);
  for (const std::string name : {"linked", "all"}) EXPECT_THAT(reason_of(*table, name), HasSubstr("part.h5"));
  EXPECT_THAT(message_of<UserError>([&] {
                open_table(path(), {"linked", "y"})->index_of("linked");
              }),
              HasSubstr("another file, part.h5"));
  EXPECT_THAT(reason_of(*table, "by_soft_link"), HasSubstr("/all/x"));
  EXPECT_THROW(table->index_of("by_soft_link"), UserError);
  warn_of_unusable_columns(*table);
}

TEST_F(Hdf5Tables, ValuesInOtherFilesNeverGetIntoACopy) {
  const auto secret = folder_ / "secret.txt";
  std::ofstream(secret) << "hunter2 hunter2 hunter2";
  create();
  add("pixels", {rows_of_x, 1}, H5T_NATIVE_UINT8, nullptr,
      [&](hid_t creation) { H5Pset_external(creation, secret.c_str(), 0, rows_of_x); });
  add("text", {1}, string_type(rows_of_x, check_).get(), nullptr,
      [&](hid_t creation) { H5Pset_external(creation, secret.c_str(), 0, rows_of_x); });
  const auto table = opened();
  EXPECT_THAT(reason_of(*table, "pixels"),
              AllOf(HasSubstr("another file, " + secret.string()), HasSubstr("external storage")));
  EXPECT_THAT(table->other_columns(), ElementsAre());
  EXPECT_THAT(message_of<UserError>([&] { warn_of_unusable_columns(*table); }),
              AllOf(HasSubstr("column pixels of " + path()), HasSubstr(secret.string())));
}

TEST_F(Hdf5Tables, VirtualDataSetsAreNamed) {
  const auto file = create();
  const hsize_t shape[] = {rows_of_x, 3};
  const auto space = check_(H5Screate_simple(2, shape, nullptr), H5Sclose, "space");
  for (const std::string source : {"part.h5", "."})
    add(("from_" + source).c_str(), {rows_of_x, 3}, H5T_NATIVE_FLOAT, nullptr, [&](hid_t creation) {
      check_(H5Pset_virtual(creation, space.get(), source.c_str(), "/x", space.get()), "virtual");
    });
  ASSERT_GE(file, 0);
  const auto table = opened();
  EXPECT_THAT(reason_of(*table, "from_part.h5"), HasSubstr("another file, part.h5 (a virtual data set)"));
  EXPECT_THAT(reason_of(*table, "from_."), HasSubstr("virtual data set"));
}

TEST_F(Hdf5Tables, DataSetsWithoutValuesOrOfOtherLengthsAreNamed) {
  create();
  add("empty", {}, H5T_NATIVE_FLOAT, nullptr);
  const std::vector<double> mean(9, 1);
  for (const auto* name : {"a/mean", "a/std", "b"}) add(name, {3}, H5T_NATIVE_DOUBLE, mean.data());
  {  // An open object keeps the file open.
    const auto dimension = add("feature", {rows_of_x}, H5T_NATIVE_FLOAT, nullptr);
    const std::string text = "This is a netCDF dimension but not a netCDF variable.        20";
    const auto type = string_type(text.size(), check_);
    const auto space = check_(H5Screate(H5S_SCALAR), H5Sclose, "space");
    const auto attribute =
        check_(H5Acreate2(dimension.get(), "NAME", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
               H5Aclose, "NAME");
    check_(H5Awrite(attribute.get(), type.get(), text.data()), "NAME");
  }
  const auto table = opened();
  EXPECT_EQ(reason_of(*table, "empty"), "it has no values");
  EXPECT_EQ(reason_of(*table, "feature"), "it is a dimension of netCDF without values");
  EXPECT_EQ(reason_of(*table, "a/mean"), "it has 3 rows, and the table has 20");
  const auto means = open_table(path(), {"a/mean"}, OtherColumns::kept);
  EXPECT_EQ(means->rows(), 3);
  EXPECT_THAT(read_column<double>(*means, "a/std"), ElementsAre(1, 1, 1));
  EXPECT_EQ(reason_of(*means, "x"), "it has 20 rows, and the table has 3");
}

std::size_t keep_bytes(unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*, void**) {
  return bytes;
}

TEST_F(Hdf5Tables, AFilterThatIsNotThereIsNamed) {
  constexpr H5Z_filter_t number = 300;
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, number, 1, 1, "squeeze", nullptr, nullptr, keep_bytes};
  create();
  check_(H5Zregister(&filter), "H5Zregister");
  const std::vector<double> values(rows_of_x);
  add("packed", {rows_of_x}, H5T_NATIVE_DOUBLE, values.data(), [](hid_t creation) {
    const hsize_t chunk = 5;
    H5Pset_chunk(creation, 1, &chunk);
    H5Pset_filter(creation, number, 0, 0, nullptr);
  });
  file_.close();
  check_(H5Zunregister(number), "H5Zunregister");
  EXPECT_EQ(reason_of(*opened(), "packed"),
            "this HDF5 lacks its filter 300 (squeeze); install the filter's plugin, or write it without");
}

// 2^39 ways lead to the last of these groups.
TEST_F(Hdf5Tables, EachGroupIsVisitedOnce) {
  const auto build = [&](hid_t file) {
    std::vector<Hdf5Handle> groups;
    for (int i = 0; i < 40; ++i) groups.push_back(group(("g" + std::to_string(i)).c_str()));
    for (std::size_t i = 0; i + 1 < groups.size(); ++i)
      for (const auto* name : {"a", "b"})
        H5Lcreate_hard(file, ("g" + std::to_string(i + 1)).c_str(), groups[i].get(), name, H5P_DEFAULT,
                       H5P_DEFAULT);
  };
  build(create());
  EXPECT_EQ(opened()->unusable_columns().size(), 78u);
  file_ = check_(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "create");
  build(file_.get());
  file_.close();
  EXPECT_THAT(
      message_of<CorruptInput>([&] { open_table(path()); }),
      HasSubstr(
          "has no column with numbers that can be used, or is damaged: g0/a: it is the group /g1 again"));
}

// A path may have as many names as its groups are deep, so a chain of groups must end somewhere.
TEST_F(Hdf5Tables, GroupsAreNotNestedWithoutEnd) {
  create();
  std::string path;
  for (int i = 0; i < 100; ++i) group((path += "/g").c_str());
  const auto table = opened();
  ASSERT_EQ(table->unusable_columns().size(), 1u);
  EXPECT_EQ(table->unusable_columns()[0].reason, "groups are nested too deep");
  EXPECT_THROW(table->index_of(table->unusable_columns()[0].name), CorruptInput);
}

// What another program has written in the latest format, a copy can hold.
TEST_F(Hdf5Tables, TextsOfTheLatestFormatAreCopied) {
  create({}, [](hid_t access) { H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST); });
  const auto type = string_type(2, check_);
  const std::string names(2 * rows_of_x, 'n');
  add("name", {rows_of_x}, type.get(), names.data());
  const auto table = opened();
  const auto copy = folder_ / "copy.h5";
  create_table_file(copy, table->columns(), table->rows(), path(), table->other_columns());
  std::vector<std::string> texts;
  open_table(copy.string())->read_text("name", [&](std::string_view text) { texts.emplace_back(text); });
  EXPECT_THAT(texts, testing::Each("nn"));
}

}  // namespace
}  // namespace farandole
