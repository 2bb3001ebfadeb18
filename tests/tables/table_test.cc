#include "farandole/tables/table.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"
#include "trainer/data_fixtures.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/table_writer.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Tables : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // A table of two columns: x float32 [rows, 3], and label int64.
  std::string write_hdf5(const std::string& name, std::int64_t rows) {
    const auto path = (folder_ / name).string();
    auto file = Hdf5File::create(path);
    std::vector<float> x(static_cast<std::size_t>(rows) * 3);
    std::vector<std::int64_t> labels;
    for (std::int64_t row = 0; row < rows; ++row) {
      labels.push_back(row % 10);
      for (int k = 0; k < 3; ++k) x[static_cast<std::size_t>(3 * row + k)] = static_cast<float>(10 * row + k);
    }
    const std::vector<std::int64_t> shape = {rows, 3}, length = {rows};
    file.write_array("/x", DType::float32, shape, std::as_bytes(std::span(x)));
    file.write_array("/label", DType::int64, length, std::as_bytes(std::span(labels)));
    file.close();
    return path;
  }
  template <class T>
  static std::vector<T> read(const DataTable& table, const std::string& name) {
    const auto column = table.index_of(name);
    std::vector<T> values(table.columns()[column].row_bytes() / sizeof(T) *
                          static_cast<std::size_t>(table.rows()));
    table.read(column, 0, table.rows(), std::as_writable_bytes(std::span(values)));
    return values;
  }
  template <class Wrong = UserError>
  static std::string refusal(const std::string& files) {
    try {
      open_table(files);
    } catch (const Wrong& error) {
      return error.what();
    }
    return "";
  }

  const TemporaryFolder folder_;
};

TEST_F(Tables, CsvHasTypesQuotesAndAHeader) {
  const auto table = open_table(write(
      "a.csv", "id,\"weight, kg\",name,gap\r\n1,2.5,\"Ann \"\"A\"\"\",3\r\n-2,1e3,\"two\nlines\",\r\n"));
  EXPECT_EQ(table->rows(), 2);
  EXPECT_THAT(table->other_columns(), ElementsAre("name"));
  EXPECT_THAT(read<std::int64_t>(*table, "id"), ElementsAre(1, -2));
  EXPECT_THAT(read<double>(*table, "weight, kg"), ElementsAre(2.5, 1000));
  const auto gap = read<double>(*table, "gap");
  EXPECT_EQ(gap[0], 3);
  EXPECT_TRUE(std::isnan(gap[1]));
}

TEST_F(Tables, CsvMayBeginWithAByteOrderMark) {
  for (const std::string name : {"id", "\"id\""}) {
    const auto table = open_table(write("bom.csv", "\xEF\xBB\xBF" + name + ",x\n1,2\n"));
    EXPECT_THAT(read<std::int64_t>(*table, "id"), ElementsAre(1));
  }
}

TEST_F(Tables, BadCsvNamesLineAndColumn) {
  EXPECT_THAT(refusal<CorruptInput>(write("r.csv", "a,b,c\n1,2,3\n\"x\ny\",2\n")),
              AllOf(HasSubstr("r.csv: line 4 has 2 columns"), HasSubstr("missing is c")));
  EXPECT_THAT(refusal<CorruptInput>(write("l.csv", "a,b\n1,2\n1,2,3\n")), HasSubstr("line 3 has 3 columns"));
  EXPECT_THAT(refusal<CorruptInput>(write("q.csv", "a,b\n1,\"2\"x\n")),
              HasSubstr("line 2: column 2 is not valid CSV"));
  EXPECT_THAT(refusal<CorruptInput>(write("o.csv", "a,b\n1,\"2\n")),
              HasSubstr("a quoted field does not end"));
  EXPECT_THAT(refusal(write("e.csv", "")), HasSubstr("is empty"));
}

TEST_F(Tables, Hdf5HasColumnsOfEquallyManyRows) {
  const auto table = open_table(write_hdf5("t.h5", 7));
  EXPECT_EQ(table->rows(), 7);
  EXPECT_THAT(table->columns()[table->index_of("x")].shape, ElementsAre(3));
  EXPECT_EQ(read<float>(*table, "x")[3 * 4 + 2], 42);
  try {
    table->index_of("lable");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("no column lable, did you mean label?"), HasSubstr("label, x")));
  }
  auto file = Hdf5File::create(folder_ / "uneven.h5");
  const std::vector<float> values(6);
  for (const std::int64_t rows : {2, 3}) {
    const std::vector<std::int64_t> shape = {rows, 6 / rows};
    file.write_array("/of" + std::to_string(rows), DType::float32, shape, std::as_bytes(std::span(values)));
  }
  file.close();
  EXPECT_THAT(refusal((folder_ / "uneven.h5").string()),
              HasSubstr("column of3 has 3 rows, and column of2 has 2"));
}

TEST_F(Tables, ArraysAreJoinedToATable) {
  std::string npy("\x93NUMPY\x01\x00", 8);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(117, ' ');
  header += '\n';
  npy += std::string({static_cast<char>(header.size()), '\0'}) + header;
  const float values[] = {1, 2, 3, 4, 5, 6};
  npy.append(reinterpret_cast<const char*>(values), sizeof values);
  const auto x = write("x.npy", npy);
  const auto y = write("labels-idx1", std::string("\0\0\x08\x01\0\0\0\x02\x07\x09", 10));
  const auto wide = write("wide-idx1", std::string("\0\0\x0c\x01\0\0\0\x02\0\0\x01\x02\xff\xff\xff\xff", 16));
  const auto table = open_table(x + ",digit=" + y + "," + wide);
  EXPECT_THAT(read<float>(*table, "x"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read<std::uint8_t>(*table, "digit"), ElementsAre(7, 9));
  EXPECT_THAT(read<std::int32_t>(*table, "wide-idx1"), ElementsAre(258, -1));
  EXPECT_THAT(refusal(x + "," + x), HasSubstr("second column x"));
  EXPECT_THAT(refusal(x + "," + write_hdf5("five.h5", 5)), HasSubstr("five.h5 has 5 rows, and"));
  npy.resize(npy.size() - 1);
  EXPECT_THAT(refusal<CorruptInput>(write("short.npy", npy)), HasSubstr("truncated at offset"));
  npy.replace(npy.find("<f4"), 3, ">f4");
  EXPECT_THAT(refusal(write("big.npy", npy)), HasSubstr("the type '>f4' cannot be read"));
  EXPECT_THAT(refusal<CorruptInput>(write("short-idx", std::string("\0\0\x08\x01\0\0\0\x03\x07\x09", 10))),
              HasSubstr("declares 11 bytes, and it has 10"));
}

TEST_F(Tables, WhatIsNoTableIsRefused) {
  EXPECT_THAT(refusal("nowhere.h5"), HasSubstr("there is no table nowhere.h5"));
  EXPECT_THAT(refusal(folder_.path().string()), HasSubstr("is a folder"));
  EXPECT_THAT(refusal(write("a.txt", "hello, world")), HasSubstr("is no table"));
  EXPECT_EQ(refusal<CorruptInput>(write("a.h5", "hello")).empty(), false);
}

TEST_F(Tables, PackedIdxFilesAreReadToTheirChecksum) {
  const std::string idx = std::string("\0\0\x08\x02\0\0\0\x14\0\0\0\x08", 12) + std::string(160, 'x');
  const auto file = write("images.gz", "");
  write_gzip(file, idx);
  EXPECT_EQ(read<std::uint8_t>(*open_table(file), "images").size(), 160u);
  const auto packed = read_bytes(file);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    SCOPED_TRACE(size);
    write("images.gz", packed.substr(0, size));
    EXPECT_THAT(message_of<Error>([&] { open_table(file); }), HasSubstr("images.gz"));
  }
  auto damaged = packed;
  damaged[packed.size() - 6] ^= 1;
  EXPECT_THAT(refusal<CorruptInput>(write("images.gz", damaged)), HasSubstr("incorrect data check"));
  EXPECT_THAT(refusal<CorruptInput>(write("longer", idx + "x")),
              HasSubstr("declares 172 bytes, and it has 173"));
}

// Data sets that nobody asks for may have another number of rows.
TEST_F(Tables, Hdf5HasOnlyTheColumnsAskedFor) {
  const auto path = write_hdf5("t.h5", 7);
  const auto table = open_table(path, {"x", "none"});
  EXPECT_EQ(table->columns().size(), 1u);
  EXPECT_TRUE(table->has("label"));
  EXPECT_FALSE(table->has("none"));
  EXPECT_THAT(message_of<UserError>([&] { table->index_of("none"); }), HasSubstr("its columns are label, x"));
}

// HDF5 files may begin with bytes of somebody else; the offsets of their data sets count these.
TEST_F(Tables, Hdf5IsFoundBehindAUserBlock) {
  const auto path = write_hdf5("t.h5", 7);
  const auto behind = write("behind", std::string(512, '#') + read_bytes(path));
  EXPECT_THAT(read<float>(*open_table(behind), "x"),
              testing::ElementsAreArray(read<float>(*open_table(path), "x")));
}

// The numbers of such headers multiply to 0 in 64 bits.
TEST_F(Tables, ShapesThatNoFileCanHaveAreRefused) {
  const std::string extent("\x00\x01\x00\x00", 4);  // 65,536
  const auto idx = write("huge.idx", std::string("\x00\x00\x08\x04", 4) + extent + extent + extent + extent);
  EXPECT_THAT(refusal<CorruptInput>(idx), HasSubstr("huge.idx has an impossible shape"));
  for (const std::string shape :
       {"(4611686018427387904, 4)", "(0, 4294967296, 4294967296, 4)", "(3, 9223372036854775807)"}) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(117, ' ');
    const auto npy = write("huge.npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n");
    EXPECT_THAT(refusal<CorruptInput>(npy), HasSubstr("huge.npy has an impossible shape")) << shape;
  }
}

// Whatever the bytes of a header are, the table is read or refused.
TEST_F(Tables, DamagedHeadersDoNoHarm) {
  std::mt19937 random(seed(26));
  std::string npy = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }";
  npy.resize(117, ' ');
  npy = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + npy + "\n" + std::string(60, 'x');
  const std::string idx =
      std::string("\x00\x00\x0d\x02\x00\x00\x00\x05\x00\x00\x00\x03", 12) + std::string(60, 'x');
  int read_again = 0;
  for (int round = 0; round < rounds(2000, 100'000); ++round) {
    const bool numpy = round % 2 == 0;
    std::string bytes = numpy ? npy : idx;
    for (auto damage = 1 + random() % 3; damage > 0; --damage)
      bytes[random() % (numpy ? 128 : 12)] =
          static_cast<char>(random() % 2 == 0 ? '0' + random() % 10 : random());
    const auto file = write(numpy ? "damaged.npy" : "damaged.idx", bytes);
    try {
      const auto table = open_table(file);
      const auto row = table->columns()[0].row_bytes();
      std::vector<std::byte> out(static_cast<std::size_t>(table->rows()) * row);
      ASSERT_LE(out.size(), bytes.size());
      if (row > 0) table->read(0, 0, table->rows(), out);
      ++read_again;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read_again, 0);
}

TEST_F(Tables, ASplitHasEachRowOnce) {
  const auto whole = open_table(write_hdf5("whole.h5", 1003));
  std::vector<float> seen;
  const std::vector<double> fractions = {0.9, 0.1};
  for (const auto& part : random_split(whole->rows(), fractions, 4)) {
    const auto rows = write_rows(*whole, part, folder_ / "part.h5");
    const auto written = open_table((folder_ / "part.h5").string());
    EXPECT_EQ(written->rows(), rows);
    const auto x = read<float>(*written, "x");
    const auto labels = read<std::int64_t>(*written, "label");
    for (std::size_t row = 0; row < labels.size(); ++row) {
      EXPECT_EQ(static_cast<std::int64_t>(x[3 * row]) / 10 % 10, labels[row]);
      seen.push_back(x[3 * row]);
    }
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), 1003u);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<float>(10 * i));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2)
      << "temporary files stay";
}

// bfloat16 is stored as uint16, so that the attribute alone tells the type.
TEST_F(Tables, ASplitKeepsTheTypes) {
  const auto path = (folder_ / "half.h5").string();
  auto file = Hdf5File::create(path);
  const std::vector<std::uint16_t> bits = {0x3f80, 0xc000, 0x7f80};
  const std::vector<std::int64_t> length = {3};
  file.write_array("/b", DType::bfloat16, length, std::as_bytes(std::span(bits)));
  file.write_array("/h", DType::float16, length, std::as_bytes(std::span(bits)));
  file.close();
  const auto whole = open_table(path);
  const std::vector<double> all = {1.0};
  write_rows(*whole, random_split(3, all, 1).front(), folder_ / "part.h5");
  const auto written = open_table((folder_ / "part.h5").string());
  EXPECT_EQ(written->columns()[written->index_of("b")].dtype, DType::bfloat16);
  EXPECT_EQ(written->columns()[written->index_of("h")].dtype, DType::float16);
  EXPECT_THAT(read<std::uint16_t>(*written, "b"), testing::UnorderedElementsAreArray(bits));
}

}  // namespace
}  // namespace farandole
