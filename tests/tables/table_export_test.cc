#include "farandole/tables/table_export.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <limits>

#include "error_message.h"
#include "tables/read_column.h"

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/formats.h"
#include "farandole/tables/table_writer.h"

namespace farandole {
namespace {

using namespace ::testing;

class TableFiles : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }
  static std::vector<std::string> texts_of(const DataTable& table, const std::string& name) {
    std::vector<std::string> texts;
    table.read_text(name, [&](std::string_view text) { texts.emplace_back(text); });
    return texts;
  }
  template <class T>
  static std::vector<std::byte> bytes(const std::vector<T>& values) {
    const auto all = std::as_bytes(std::span(values));
    return {all.begin(), all.end()};
  }

  const TemporaryFolder folder_;
};

TEST_F(TableFiles, TheSuffixDecidesOnTheFormat) {
  const auto table = open_table(write("in.csv", "x\n1\n2.5\n"));
  for (const auto* name : {"out.h5", "out.hdf5"}) {
    export_rows(*table, RowSelection(), file(name));
    EXPECT_EQ(read_whole_file(file(name))->substr(1, 3), "HDF") << name;
  }
  export_rows(*table, RowSelection(), file("out.csv"));
  EXPECT_EQ(*read_whole_file(file("out.csv")), "x\n1\n2.5\n");
  export_rows(*table, RowSelection(), file("out.npy"));
  EXPECT_THAT(read_column<double>(*open_table(file("out.npy")), "out"), ElementsAre(1, 2.5));
  for (const auto* name : {"out.txt", "out", "out.npz", "out.csv.gz"}) {
    EXPECT_THAT(message_of<UserError>([&] { export_rows(*table, RowSelection(), file(name)); }),
                AllOf(HasSubstr(name), HasSubstr("use .h5, .csv or, for one column, .npy")));
    EXPECT_FALSE(std::filesystem::exists(file(name)));
  }
  const auto two = open_table(write("two.csv", "x,y\n1,2\n"));
  EXPECT_THAT(message_of<UserError>([&] { export_rows(*two, RowSelection(), file("two.npy")); }),
              HasSubstr("cannot hold the 2 columns"));
  EXPECT_FALSE(std::filesystem::exists(file("two.npy")));
}

TEST_F(TableFiles, CsvHasAllNumbersAndTextsSoThatTheyAreReadAgain) {
  const auto input =
      write("in.csv", "name,x,n\n\"a, b\",0.1,7\n\"say \"\"hi\"\"\",,-3\nplain,1e300,9007199254740993\n");
  EXPECT_EQ(export_rows(*open_table(input), RowSelection(), file("out.csv")), 3);
  const auto again = open_table(file("out.csv"));
  EXPECT_THAT(texts_of(*again, "name"), ElementsAre("a, b", "say \"hi\"", "plain"));
  const auto x = read_column<double>(*again, "x");
  EXPECT_EQ(x[0], 0.1);
  EXPECT_TRUE(std::isnan(x[1]));
  EXPECT_EQ(x[2], 1e300);
  EXPECT_THAT(read_column<std::int64_t>(*again, "n"), ElementsAre(7, -3, 9007199254740993));
  const RowSelection odd([](std::int64_t row) { return row % 2 == 1; });
  EXPECT_EQ(export_rows(*again, odd, file("one.csv")), 1);
  EXPECT_EQ(*read_whole_file(file("one.csv")), "name,x,n\n\"say \"\"hi\"\"\",,-3\n");
}

TEST_F(TableFiles, CsvHasAColumnForEachNumberOfARow) {
  MemoryTable table("t", 2);
  table.add({"v", DType::float32, {2}}, bytes(std::vector<float>{1, 0.1F, -2, 3e38F}));
  table.add({"half", DType::float16, {}}, bytes(std::vector<std::uint16_t>{0x3C00, 0xC100}));
  table.add({"b", DType::bfloat16, {}}, bytes(std::vector<std::uint16_t>{0x3F80, 0xBFC0}));
  table.add({"u", DType::uint8, {}}, bytes(std::vector<std::uint8_t>{0, 255}));
  table.add({"class", DType::int64, {}}, bytes(std::vector<std::int64_t>{1, 0}));
  export_rows(table, RowSelection(), file("out.csv"), {{"class", {"cat", "dog"}}});
  EXPECT_EQ(*read_whole_file(file("out.csv")),
            "v_0,v_1,half,b,u,class\n1,0.1,1,1,0,dog\n-2,3e+38,-2.5,-1.5,255,cat\n");
  table.add({"v_0", DType::uint8, {}}, bytes(std::vector<std::uint8_t>{0, 255}));
  EXPECT_THAT(message_of<UserError>([&] { export_rows(table, RowSelection(), file("twice.csv")); }),
              HasSubstr("two columns v_0"));
}

TEST_F(TableFiles, NumpyHasTheShapeOfTheRows) {
  MemoryTable table("t", 3);
  table.add({"v", DType::int32, {2}}, bytes(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  export_rows(table, RowSelection(), file("v.npy"));
  const auto again = open_table(file("v.npy"));
  EXPECT_EQ(again->columns()[0].shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(again->columns()[0].dtype, DType::int32);
  EXPECT_THAT(read_column<std::int32_t>(*again, "v"), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(TableFiles, TextsOfHdf5AreRead) {
  const std::vector<DataColumn> columns = {{"n", DType::int64, {}}, {"name", DType::uint8, {3}, true, {}}};
  const auto offsets = create_table_file(file("t.h5"), columns, 2);
  const TableWriter writer(file("t.h5"), columns, offsets);
  writer.write(0, 0, bytes(std::vector<std::int64_t>{1, 2}));
  writer.write(1, 0, bytes(std::vector<char>{'a', 'b', 'c', 'd', 0, 0}));
  const auto table = open_table(file("t.h5"));
  EXPECT_THAT(table->other_columns(), ElementsAre("name"));
  EXPECT_THAT(texts_of(*table, "name"), ElementsAre("abc", "d"));
  EXPECT_THAT(message_of<UserError>([&] { texts_of(*table, "n"); }), HasSubstr("does not hold texts"));
}

TEST_F(TableFiles, TextsAreNumberedAsClasses) {
  const auto table = open_table(write("t.csv", "x,kind,other\n1,dog,a\n2,cat,b\n3,dog,a\n"));
  ClassNames classes;
  const auto numbered = number_classes(table, {"kind", "x"}, classes);
  EXPECT_THAT(classes["kind"], ElementsAre("cat", "dog"));
  EXPECT_EQ(classes.size(), 1u);
  EXPECT_THAT(read_column<std::int32_t>(*numbered, "kind"), ElementsAre(1, 0, 1));
  EXPECT_THAT(numbered->other_columns(), ElementsAre("other"));
  EXPECT_THAT(read_column<std::int64_t>(*numbered, "x"), ElementsAre(1, 2, 3));
  // A part, as a reader asks for it.
  std::vector<std::int32_t> part(1);
  Bytes scratch;
  const RowPiece pieces[] = {{1, nullptr}, {1, reinterpret_cast<std::byte*>(part.data())}};
  numbered->read_pieces(numbered->index_of("kind"), 1, pieces, scratch);
  EXPECT_EQ(part[0], 1);

  EXPECT_THAT(numbered->warnings(), ElementsAre());
  const auto gap = open_table(write("gap.csv", "x,y\n5,0\n6,NA\n7,1\n"));
  ClassNames of_gap;
  EXPECT_THAT(
      number_classes(gap, {"y"}, of_gap)->warnings(),
      ElementsAre("column y of " + gap->source() +
                  " has numbers and texts (line 3 has 'NA'), so all its values are names of classes"));

  ClassNames trained = {{"kind", {"cat", "cow"}}};
  EXPECT_EQ(message_of<UserError>([&] { number_classes(table, {"kind"}, trained); }),
            file("t.csv") +
                ": column kind has the class 'dog' in row 0, with which the model was not trained; its "
                "classes are cat, cow");
  ClassNames of_numbers = {{"x", {"cat", "cow"}}};
  EXPECT_THAT(message_of<UserError>([&] { number_classes(table, {"x"}, of_numbers); }),
              HasSubstr("column x of " + file("t.csv") + " holds numbers"));
  // An empty text is missing.
  ClassNames of_holes;
  const auto holes =
      number_classes(open_table(write("holes.csv", "x,k\n1,dog\n2,\n3,cat\n")), {"k"}, of_holes);
  EXPECT_THAT(of_holes["k"], ElementsAre("cat", "dog"));
  EXPECT_THAT(read_column<double>(*holes, "k"), ElementsAre(1, IsNan(), 0));
  // The classes of a model that was trained before CSV files had columns of true and false.
  ClassNames of_flags = {{"k", {"False", "True"}}};
  const auto flags = open_table(write("flags.csv", "x,k\n1,True\n2,False\n"));
  EXPECT_EQ(number_classes(flags, {"k"}, of_flags), flags);
  EXPECT_EQ(export_rows(*flags, RowSelection(), file("out.csv")), 2);
  EXPECT_EQ(*read_whole_file(file("out.csv")), "x,k\n1,True\n2,False\n");
  ClassNames none;
  EXPECT_THAT(message_of<UserError>(
                  [&] { number_classes(open_table(write("l.csv", "x,k\n1,\xE9t\xE9\n")), {"k"}, none); }),
              HasSubstr("column k of " + file("l.csv") + " has a text that is not UTF-8"));
}

}  // namespace
}  // namespace farandole
