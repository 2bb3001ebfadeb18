#include "farandole/tables/table.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <zlib.h>

#include "error_message.h"
#include "lane.h"
#include "tables/read_column.h"
#include "trainer/data_fixtures.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/table_writer.h"

namespace farandole {
namespace {

using namespace ::testing;

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
  EXPECT_THAT(read_column<std::int64_t>(*table, "id"), ElementsAre(1, -2));
  EXPECT_THAT(read_column<double>(*table, "weight, kg"), ElementsAre(2.5, 1000));
  const auto gap = read_column<double>(*table, "gap");
  EXPECT_EQ(gap[0], 3);
  EXPECT_TRUE(std::isnan(gap[1]));
}

TEST_F(Tables, CsvMayBeginWithAByteOrderMark) {
  for (const std::string name : {"id", "\"id\""}) {
    const auto table = open_table(write("bom.csv", "\xEF\xBB\xBF" + name + ",x\n1,2\n"));
    EXPECT_THAT(read_column<std::int64_t>(*table, "id"), ElementsAre(1));
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

TEST_F(Tables, CsvNumbersMayBeTinyOrHaveAPlusSign) {
  const auto table =
      open_table(write("n.csv", "p,q,huge\n0.5,+1.5,1\n1e-400,-2,1e400\n-1e-99999999999999999999,+0,2\n0." +
                                    std::string(400, '0') + "1,1,3\n"));
  const auto p = read_column<double>(*table, "p");
  EXPECT_THAT(p, ElementsAre(0.5, 0, 0, 0));
  EXPECT_TRUE(std::signbit(p[2]));
  EXPECT_THAT(read_column<double>(*table, "q"), ElementsAre(1.5, -2, 0, 1));
  EXPECT_EQ(table->first_text("huge"), "line 3 has '1e400'");
}

TEST_F(Tables, CsvNamesTheValueThatIsNoNumber) {
  const auto table = open_table(write("na.csv", "area,rooms,name\n20.5,2,Ann\n31,NA,Bob\n44,4,\n"));
  EXPECT_EQ(
      message_of<UserError>([&] { table->index_of("rooms"); }),
      "column rooms of " + table->source() +
          " does not hold numbers: line 3 has 'NA'; correct the table; the columns with numbers are area");
  EXPECT_EQ(table->first_text("name"), "line 2 has 'Ann'");
  EXPECT_EQ(table->first_text("area"), "");
  EXPECT_THAT(refusal(write("texts.csv", "a\n1\nx\n")),
              HasSubstr("texts.csv has no column with numbers: column a: line 3 has 'x'"));
  EXPECT_EQ(open_table(write("long.csv", "a\n" + std::string(100, 'x') + "\n1\n") + "," +
                       write("two.csv", "b\n1\n2\n"))
                ->first_text("a"),
            "line 2 has '" + std::string(40, 'x') + "…'");
}

TEST_F(Tables, CsvWithOtherSeparatorsIsRefusedByTheirNames) {
  const std::pair<std::string, std::string> cases[] = {
      {"area;rooms;price\n20,5;2;1,5\n31,25;3;2,5\n",
       "semicolons separate its columns, and its numbers have decimal "
       "commas; .*sep=';', decimal=','\\)"},
      {"area;rooms;price\r\n20;2;1\r\n", "semicolons separate its columns; .*sep=';'\\)"},
      {"\"area, m2\";rooms\n20,5;2\n", "semicolons .*decimal commas"},
      {"area, m2;rooms\n20;2\n", "semicolons"},
      {"sep=;\narea;rooms;price\n1;2;3\n", "semicolons"},
      {"a\tb\n1\t2\n", "tabs separate its columns; .*sep='\\\\t'"},
      {"a|b\n", "vertical bars"},
      {"\xFF\xFE" + std::string("a\0,\0b\0\n\0", 8), "is a text in UTF-16; convert it with iconv"}};
  for (const auto& [text, pattern] : cases)
    EXPECT_THAT(refusal(write("s.csv", text)), testing::ContainsRegex(pattern)) << text;
  EXPECT_EQ(open_table(write("c.csv", "a;b,c\n1,2\n"))->columns().size(), 2u);
  EXPECT_EQ(open_table(write("c.csv", "a,text\n1,x;y\n"))->rows(), 1);
}

TEST_F(Tables, CsvWithoutAHeaderIsNoticed) {
  const auto table = open_table(write("no.csv", "5.1,3.5,setosa\n4.9,3.0,setosa\n"));
  EXPECT_THAT(table->warnings(),
              ElementsAre(table->source() +
                          ": the first line should name the columns, and '5.1' in it is a number; if "
                          "it is a row, write a line with names above it"));
  EXPECT_THAT(open_table(write("yes.csv", "inf,1st,\n1,2,3\n"))->warnings(), ElementsAre());
}

TEST_F(Tables, CsvNamesRemarks) {
  for (const std::string text : {"# by a tool\na,b,y\n1,2,0\n", "# by me, in May, 2024\na,b,y\n1,2,0\n",
                                 "#\n#\nx\n1\n", "# one\nx\n1\n"})
    EXPECT_THAT(refusal(write("r.csv", text)), HasSubstr("r.csv: line 1 is a remark (#); remove it")) << text;
  EXPECT_THAT(refusal<CorruptInput>(write("end.csv", "a,b\n1,2\n# total 1\n")),
              HasSubstr("end.csv: line 3 is a remark (#); remove it"));
  // As numpy.savetxt writes names.
  EXPECT_EQ(open_table(write("n.csv", "# a,b\n1,2\n"))->columns().front().name, "# a");
  EXPECT_THAT(refusal(write("s.csv", "# a;b\n1;2\n")), HasSubstr("semicolons separate"));
}

TEST_F(Tables, CsvColumnsMayBeTrueOrFalse) {
  const auto table = open_table(write(
      "b.csv", "a,owner,gap,mixed,late\n1.5,True,,true,\n2.5,False,FALSE,maybe,\n3.5,True,TRUE,false,7\n"));
  EXPECT_EQ(table->columns()[table->index_of("owner")].dtype, DType::boolean);
  EXPECT_THAT(read_column<std::uint8_t>(*table, "owner"), ElementsAre(1, 0, 1));
  EXPECT_THAT(read_column<double>(*table, "gap"), ElementsAre(IsNan(), 0, 1));
  EXPECT_THAT(read_column<double>(*table, "late"), ElementsAre(IsNan(), IsNan(), 7));
  EXPECT_EQ(table->first_text("mixed"), "line 3 has 'maybe'");
}

TEST_F(Tables, CsvMayBePacked) {
  const auto packed = [&](const std::string& name, std::size_t bytes) {
    const auto path = (folder_ / name).string();
    const std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file(gzopen(path.c_str(), "wb"), gzclose);
    std::string text = "a,name\n";
    while (text.size() < bytes)
      text += std::to_string(text.size()) + ",row " + std::to_string(text.size()) + "\n";
    EXPECT_EQ(gzwrite(file.get(), text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    return path;
  };
  const auto table = open_table(packed("t.csv.gz", 3 << 20));
  EXPECT_TRUE(is_table(table->source()));
  EXPECT_EQ(read_column<std::int64_t>(*table, "a").front(), 7);
  std::int64_t texts = 0;
  table->read_text("name", [&](std::string_view text) { texts += text.starts_with("row "); });
  EXPECT_EQ(texts, table->rows());
  const auto damaged = packed("d.csv.gz", 3 << 20);
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) / 2);
  EXPECT_THAT(refusal<CorruptInput>(damaged),
              ContainsRegex("d.csv.gz: the gzip data is truncated, at line [0-9]+;"));
  EXPECT_THAT(refusal(write("t.csv.zst", "x")),
              HasSubstr("is no table: tables are HDF5 (.h5), CSV (.csv, .csv.gz)"));
  EXPECT_THAT(refusal(write("t.csv.zst", "x")), HasSubstr("; unpack it"));
}

TEST_F(Tables, SuffixesMayHaveCapitalLetters) {
  EXPECT_EQ(open_table(write("UPPER.CSV", "a,y\n1.5,0\n2.5,1\n"))->rows(), 2);
  EXPECT_EQ(open_table(write_hdf5("X.H5", 3))->rows(), 3);
  EXPECT_TRUE(is_table(write("Y.Csv", "a\n1\n")));
}

TEST_F(Tables, Hdf5HasColumnsOfEquallyManyRows) {
  const auto table = open_table(write_hdf5("t.h5", 7));
  EXPECT_EQ(table->rows(), 7);
  EXPECT_THAT(table->columns()[table->index_of("x")].shape, ElementsAre(3));
  EXPECT_EQ(read_column<float>(*table, "x")[3 * 4 + 2], 42);
  EXPECT_THAT(message_of<UserError>([&] { table->index_of("lable"); }),
              AllOf(HasSubstr("no column lable, did you mean label?"), HasSubstr("label, x")));
  auto file = Hdf5File::create(folder_ / "uneven.h5");
  const std::vector<float> values(6);
  for (const std::int64_t rows : {2, 3}) {
    const std::vector<std::int64_t> shape = {rows, 6 / rows};
    file.write_array("/of" + std::to_string(rows), DType::float32, shape, std::as_bytes(std::span(values)));
  }
  file.close();
  const auto uneven = (folder_ / "uneven.h5").string();
  EXPECT_THAT(message_of<UserError>([&] {
                open_table(uneven, {"of2", "of3"});
              }),
              HasSubstr("column of3 has 3 rows, and column of2 has 2"));
  // Each of them can be chosen.
  EXPECT_EQ(open_table(uneven)->rows(), 3);
  const auto of2 = open_table(uneven, {"of2"}, OtherColumns::kept);
  EXPECT_EQ(of2->rows(), 2);
  EXPECT_THAT(message_of<UserError>([&] { of2->index_of("of3"); }),
              HasSubstr("column of3 of " + uneven + " cannot be used: it has 3 rows, and the table has 2"));
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
  EXPECT_THAT(read_column<float>(*table, "x"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read_column<std::uint8_t>(*table, "digit"), ElementsAre(7, 9));
  EXPECT_THAT(read_column<std::int32_t>(*table, "wide-idx1"), ElementsAre(258, -1));
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
  EXPECT_EQ(read_column<std::uint8_t>(*open_table(file), "images").size(), 160u);
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
  EXPECT_THAT(read_column<float>(*open_table(behind), "x"),
              testing::ElementsAreArray(read_column<float>(*open_table(path), "x")));
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
  for (int round = 0; round < rounds(800, 100'000); ++round) {
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
    const auto x = read_column<float>(*written, "x");
    const auto labels = read_column<std::int64_t>(*written, "label");
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
  EXPECT_THAT(read_column<std::uint16_t>(*written, "b"), testing::UnorderedElementsAreArray(bits));
}

}  // namespace
}  // namespace farandole
