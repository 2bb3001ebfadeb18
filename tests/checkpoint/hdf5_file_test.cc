#include "farandole/checkpoint/hdf5_file.h"

#include <atomic>
#include <gmock/gmock.h>
#include <numeric>
#include <thread>
#include <unistd.h>

#include "checkpoint/checkpoint_fixtures.h"
#include "error_message.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/checkpoint/hdf5_handle.h"

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Writes a data set as users do: with any type of HDF5, and optionally in compressed chunks of two rows.
template <typename Value>
void write_users_dataset(const std::filesystem::path& file, const char* name, hid_t stored, hid_t memory,
                         std::vector<hsize_t> shape, const std::vector<Value>& values, bool chunked) {
  const Hdf5Lock lock;
  const Hdf5Check check(file.string(), ExitCode::failure);
  const bool exists = std::filesystem::exists(file);
  const auto hdf5 = check(exists ? H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                                 : H5Fcreate(file.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT),
                          H5Fclose, "create");
  const auto space =
      check(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "space");
  const auto creation = check(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
  if (chunked) {
    auto chunk = shape;
    chunk[0] = 2;
    check(H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), "chunk");
    check(H5Pset_deflate(creation.get(), 1), "deflate");
  }
  const auto dataset =
      check(H5Dcreate2(hdf5.get(), name, stored, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
            H5Dclose, "data");
  check(H5Dwrite(dataset.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "write");
}

template <typename Value>
std::vector<Value> rows_of(const Hdf5Dataset& dataset, std::int64_t first, std::int64_t count, DType dtype) {
  std::vector<Value> values(static_cast<std::size_t>(count) * dataset.row_bytes(dtype) / sizeof(Value));
  dataset.read_rows(first, count, dtype, std::as_writable_bytes(std::span(values)));
  return values;
}

struct Hdf5Test : testing::Test {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "d.h5";
};

TEST_F(Hdf5Test, DatasetConvertsEveryIntegerAndFloatType) {
  std::vector<int> values(12);
  std::iota(values.begin(), values.end(), 0);
  const hid_t types[] = {H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16BE, H5T_STD_U16LE,
                         H5T_STD_I32BE,  H5T_STD_U32LE,  H5T_STD_I64LE, H5T_STD_U64BE,
                         H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE};
  int number = 0;
  for (const auto type : types) {
    for (const bool chunked : {false, true}) {
      const auto path = folder / ("d" + std::to_string(number++) + ".h5");
      write_users_dataset(path, "x", type, H5T_NATIVE_INT, {4, 3}, values, chunked);
      const auto dataset = Hdf5File::open(path).dataset("/x");
      EXPECT_THAT(dataset.shape(), ElementsAre(4, 3));
      EXPECT_EQ(dataset.rows(), 4);
      EXPECT_THAT(rows_of<float>(dataset, 1, 2, DType::float32), ElementsAre(3, 4, 5, 6, 7, 8));
      EXPECT_THAT(rows_of<double>(dataset, 3, 1, DType::float64), ElementsAre(9, 10, 11));
      EXPECT_THAT(rows_of<std::int64_t>(dataset, 0, 1, DType::int64), ElementsAre(0, 1, 2));
      EXPECT_THAT(rows_of<std::int32_t>(dataset, 0, 1, DType::int32), ElementsAre(0, 1, 2));
      EXPECT_THAT(rows_of<std::uint8_t>(dataset, 2, 1, DType::uint8), ElementsAre(6, 7, 8));
      EXPECT_THAT(rows_of<std::uint16_t>(dataset, 0, 1, DType::float16), ElementsAre(0, 0x3c00, 0x4000));
      EXPECT_THAT(rows_of<std::uint16_t>(dataset, 0, 1, DType::bfloat16), ElementsAre(0, 0x3f80, 0x4000));
      EXPECT_THAT(rows_of<float>(dataset, 4, 0, DType::float32), ElementsAre());
      EXPECT_THROW(rows_of<std::uint8_t>(dataset, 0, 1, DType::boolean), UserError);
    }
  }
}

TEST_F(Hdf5Test, DatasetNamesTypes) {
  const std::vector<int> values = {1, 2};
  write_users_dataset(file, "short", H5T_STD_U16LE, H5T_NATIVE_INT, {2}, values, false);
  write_users_dataset(file, "big", H5T_IEEE_F32BE, H5T_NATIVE_INT, {2}, values, false);
  const auto hdf5 = Hdf5File::open(file);
  EXPECT_EQ(hdf5.dataset("/short").type_name(), "uint16");
  EXPECT_EQ(hdf5.dataset("/short").dtype(), std::nullopt);
  EXPECT_EQ(hdf5.dataset("/short").kind(), Hdf5Dataset::Kind::integer);
  EXPECT_EQ(hdf5.dataset("/big").dtype(), DType::float32);
  float found[2];
  hdf5.dataset("/big").read(std::as_writable_bytes(std::span(found)));
  EXPECT_THAT(found, ElementsAre(1, 2));
  EXPECT_THROW(hdf5.dataset("/short").read({}), UserError);
  EXPECT_THAT(hdf5.list(), ElementsAre("/big", "/short"));
}

TEST_F(Hdf5Test, DatasetRefusesWhatIsNotThere) {
  write_users_dataset(file, "x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, std::vector<int>{1, 2}, false);
  const auto hdf5 = Hdf5File::open(file);
  EXPECT_TRUE(hdf5.contains("/x"));
  for (const auto* path : {"/y", "/no/group", "/x/y", "x y"})
    EXPECT_THAT(message_of<Error>([&] { hdf5.dataset(path); }), HasSubstr("d.h5")) << path;
  const auto dataset = hdf5.dataset("/x");
  const std::pair<std::int64_t, std::int64_t> wrong[] = {{0, 3},         {2, 1},         {-1, 1},
                                                         {1, INT64_MAX}, {INT64_MAX, 1}, {INT64_MIN, 1}};
  for (const auto& [first, count] : wrong)
    EXPECT_THROW(dataset.read_rows(first, count, DType::int32, {}), UserError) << first << " " << count;
  std::byte few[7];
  EXPECT_THROW(dataset.read_rows(0, 2, DType::int32, few), Error);
}

TEST_F(Hdf5Test, DatasetOutlivesItsFileObject) {
  write_users_dataset(file, "x", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, std::vector<int>{1, 2}, true);
  auto hdf5 = std::make_unique<Hdf5File>(Hdf5File::open(file));
  const auto dataset = hdf5->dataset("/x");
  hdf5.reset();
  EXPECT_THAT(rows_of<int>(dataset, 0, 2, DType::int32), ElementsAre(1, 2));
}

TEST_F(Hdf5Test, FileLargeArraysOfAnyLengthBesideSmallOnes) {
  std::mt19937_64 random(seed(41));
  std::vector<Array> arrays;
  for (const std::int64_t bytes :
       {65535, 65536, 65537, 69632, 69633, 1 << 20, (1 << 20) + 4095, 3, 0, 5'000'001}) {
    arrays.push_back(random_array("/large/" + std::to_string(bytes), DType::uint8, {bytes}, random));
    arrays.push_back(random_array("/small/" + std::to_string(bytes), DType::int64, {5}, random));
  }
  for (const std::size_t metadata_bytes :
       {1 << 20, 64 << 10, 512}) {  // Too little: it continues behind arrays.
    auto hdf5 = Hdf5File::create(file, metadata_bytes);
    for (const auto& array : arrays) hdf5.write_array(array.path, array.dtype, array.shape, array.bytes);
    hdf5.close();
    const auto found = Hdf5File::open(file);
    EXPECT_EQ(found.list().size(), arrays.size());
    for (const auto& array : arrays) {
      Bytes raw(array.bytes.size());
      found.dataset(array.path).read(raw);
      EXPECT_EQ(raw, array.bytes) << array.path;
      found.dataset(array.path).read_rows(0, array.shape[0], array.dtype, raw);
      EXPECT_EQ(raw, array.bytes) << array.path;
    }
  }
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// A large model has many arrays that are small each.
TEST_F(Hdf5Test, FileWritesArraysOfAnySizeThroughLittleMemory) {
  const Bytes small(60'000, std::byte{1}), large((32 << 20) + 7, std::byte{1});
  const auto before = resident_bytes();
  auto hdf5 = Hdf5File::create(file, 1501 * 2048);
  for (int i = 0; i < 1500; ++i)
    hdf5.write_array("/small/" + std::to_string(i), DType::uint8, {{60'000}}, small);
  hdf5.write_array("/large", DType::uint8, {{static_cast<std::int64_t>(large.size())}}, large);
  EXPECT_LT(resident_bytes() - before, 64 << 20) << "of 124 MB";
  hdf5.close();
}

TEST_F(Hdf5Test, FileBooleansReadAsNumbersAndBfloat16OnlyAsSuch) {
  auto hdf5 = Hdf5File::create(file);
  const std::int64_t three = 3;
  const std::uint8_t flags[] = {1, 0, 1};
  const std::uint16_t halves[] = {0x3f80, 0x4000, 0x7fc0};
  hdf5.write_array("/flags", DType::boolean, {&three, 1}, std::as_bytes(std::span(flags)));
  hdf5.write_array("/halves", DType::bfloat16, {&three, 1}, std::as_bytes(std::span(halves)));
  hdf5.close();
  const auto found = Hdf5File::open(file);
  EXPECT_THAT(rows_of<std::int64_t>(found.dataset("/flags"), 0, 3, DType::int64), ElementsAre(1, 0, 1));
  EXPECT_THAT(rows_of<std::uint8_t>(found.dataset("/flags"), 0, 3, DType::boolean), ElementsAre(1, 0, 1));
  EXPECT_EQ(found.dataset("/halves").type_name(), "bfloat16");
  EXPECT_THAT(rows_of<std::uint16_t>(found.dataset("/halves"), 1, 2, DType::bfloat16),
              ElementsAre(0x4000, 0x7fc0));
  EXPECT_THROW(rows_of<float>(found.dataset("/halves"), 0, 3, DType::float32), UserError);
}

TEST_F(Hdf5Test, FileAttributesOfEachKind) {
  auto hdf5 = Hdf5File::create(file);
  hdf5.set_attribute("/", "integer", std::int64_t{INT64_MIN});
  hdf5.set_attribute("/", "text", "first");
  hdf5.set_attribute("/", "text", "second, longer");  // replaces
  hdf5.set_attribute("/", "double", 0.1);
  EXPECT_THROW(hdf5.set_attribute("/absent", "x", 1.0), Error);
  hdf5.close();
  const auto found = Hdf5File::open(file);
  EXPECT_EQ(found.integer_attribute("/", "integer"), INT64_MIN);
  EXPECT_EQ(found.string_attribute("/", "text"), "second, longer");
  EXPECT_EQ(found.double_attribute("/", "double"), 0.1);
  EXPECT_EQ(found.integer_attribute("/", "double"), std::nullopt);
  EXPECT_EQ(found.string_attribute("/", "absent"), std::nullopt);
}

TEST_F(Hdf5Test, FileSaysWhatTheSystemRefuses) {
  EXPECT_THROW(Hdf5File::open(folder / "absent"), UserError);
  EXPECT_THAT(message_of<Error>([&] { Hdf5File::create(folder / "no" / "a.h5"); }),
              HasSubstr("No such file or directory"));
}

TEST_F(Hdf5Test, FileThreadsReadWhileOthersWrite) {
  std::vector<int> values(30000);
  std::iota(values.begin(), values.end(), 0);
  write_users_dataset(file, "x", H5T_STD_I32LE, H5T_NATIVE_INT, {10000, 3}, values, true);
  const auto dataset = Hdf5File::open(file).dataset("/x");
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int row = 0; row < 300; ++row)
        if (rows_of<int>(dataset, row * 7, 1, DType::int32)[1] != row * 21 + 1) ++wrong;
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      const auto path = folder / ("w" + std::to_string(t));
      for (int round = 0; round < 10; ++round) {
        auto hdf5 = Hdf5File::create(path);
        const std::int64_t count = 30000;
        hdf5.write_array("/x", DType::int32, {&count, 1}, std::as_bytes(std::span(values)));
        hdf5.close();
        if (rows_of<int>(Hdf5File::open(path).dataset("/x"), 0, count, DType::int32) != values) ++wrong;
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace farandole
