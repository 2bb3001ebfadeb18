#include "farandole/tables/table_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/hdf5_file.h"
#include "farandole/tables/formats.h"

namespace farandole {
namespace {

// Rows of which column `id` says the number, and column `pair` has twice and three times it.
MemoryTable numbered(std::int64_t rows) {
  MemoryTable table("numbers", rows);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows)), pairs;
  std::iota(ids.begin(), ids.end(), 0);
  for (const auto id : ids) pairs.insert(pairs.end(), {2 * id, 3 * id});
  const auto bytes = [](const auto& values) {
    const auto view = std::as_bytes(std::span(values));
    return std::vector<std::byte>(view.begin(), view.end());
  };
  table.add({"id", DType::int64, {}}, bytes(ids));
  table.add({"pair", DType::int64, {2}}, bytes(pairs));
  return table;
}

std::vector<std::int64_t> values(const std::shared_ptr<Bytes>& memory) {
  const auto& bytes = *memory;
  std::vector<std::int64_t> result(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

// The rows of one epoch of one rank, in order; checks that the columns belong together.
std::vector<std::int64_t> epoch_of(TableReader& reader, std::int64_t epoch, std::int64_t batch) {
  std::vector<std::int64_t> rows;
  reader.start(epoch);
  bool short_batch = false;
  while (const auto got = reader.next()) {
    EXPECT_FALSE(short_batch) << "only the last batch is short";
    EXPECT_LE(got->rows.size(), static_cast<std::size_t>(batch));
    short_batch = got->rows.size() < static_cast<std::size_t>(batch);
    EXPECT_EQ(values(got->columns[0]), got->rows);
    const auto pairs = values(got->columns[1]);
    for (std::size_t i = 0; i < got->rows.size(); ++i) {
      EXPECT_EQ(pairs[2 * i], 2 * got->rows[i]);
      EXPECT_EQ(pairs[2 * i + 1], 3 * got->rows[i]);
    }
    rows.insert(rows.end(), got->rows.begin(), got->rows.end());
  }
  EXPECT_FALSE(reader.next()) << "after the end";
  return rows;
}

TEST(TableReader, EveryRowIsReadOnceOnAnyNumberOfRanks) {
  for (const std::int64_t rows : {1, 2, 63, 1000, 4097})
    for (int ranks = 1; ranks <= 5; ++ranks)
      for (const bool shuffle : {true, false})
        for (const bool part : {false, true}) {
          const auto table = numbered(rows);
          const RowSelection selection =
              part ? RowSelection([](std::int64_t row) { return row % 3 != 1; }) : RowSelection();
          for (const std::int64_t epoch : {0, 1}) {
            std::vector<std::int64_t> all;
            std::set<std::size_t> sizes;
            for (int rank = 0; rank < ranks; ++rank) {
              TableReader reader(table, selection,
                                 {.columns = {0, 1},
                                  .batch = 7,
                                  .shuffle = shuffle,
                                  .seed = 5,
                                  .rank = rank,
                                  .world_size = ranks,
                                  .window_bytes = 2000});
              const auto own = epoch_of(reader, epoch, 7);
              EXPECT_EQ(static_cast<std::int64_t>(own.size()), reader.rows());
              EXPECT_LE((own.size() + 6) / 7, static_cast<std::size_t>(reader.batches()));
              EXPECT_TRUE(shuffle || std::is_sorted(own.begin(), own.end()));
              sizes.insert(own.size());
              all.insert(all.end(), own.begin(), own.end());
            }
            EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1u);
            std::sort(all.begin(), all.end());
            std::vector<std::int64_t> expected;
            for (std::int64_t row = 0; row < rows; ++row)
              if (selection.contains(row)) expected.push_back(row);
            ASSERT_EQ(all, expected) << rows << " rows, " << ranks << " ranks, shuffle " << shuffle;
          }
        }
}

TEST(TableReader, TheOrderDependsOnSeedAndEpochOnly) {
  const auto table = numbered(5000);
  const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
    TableReader reader(table, RowSelection(), {.columns = {0, 1}, .batch = 32, .seed = seed});
    return epoch_of(reader, epoch, 32);
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  // A row is as likely to come early as late: the mean place of the first tenth of the table is
  // near the middle.
  const auto shuffled = order(3, 0);
  double sum = 0;
  for (std::size_t place = 0; place < shuffled.size(); ++place)
    if (shuffled[place] < 500) sum += static_cast<double>(place);
  EXPECT_NEAR(sum / 500, 2500, 400);
}

// The rows that all ranks read in `batches` batches each, and then what is done according to each of them.
struct Stage {
  int ranks;
  std::int64_t batch, batches;
};

TEST(TableReader, AnEpochContinuesOnAnyNumberOfRanks) {
  const std::int64_t rows = 1000;
  const auto table = numbered(rows);
  const RowSelection selection([](std::int64_t row) { return row % 7 != 2; });
  for (const bool shuffle : {true, false})
    for (const auto& stages : std::vector<std::vector<Stage>>{
             {{2, 7, 11}, {3, 5, 9}, {1, 8, 100}, {4, 3, 1000}}, {{3, 10, 0}, {3, 10, 28}, {2, 1, 1000}}}) {
      std::vector<std::int64_t> all;
      RowRanges done;
      for (const auto& stage : stages) {
        std::set<std::size_t> sizes;
        RowRanges after;
        const auto done_rows = static_cast<std::int64_t>(all.size());
        for (int rank = 0; rank < stage.ranks; ++rank) {
          TableReader reader(table, selection,
                             {.columns = {0, 1},
                              .batch = stage.batch,
                              .shuffle = shuffle,
                              .rank = rank,
                              .world_size = stage.ranks,
                              .window_bytes = 3000});
          reader.start(4, done);
          sizes.insert(static_cast<std::size_t>(reader.rows()));
          EXPECT_EQ(reader.left_rows() + done_rows, reader.selected_rows());
          for (std::int64_t i = 0; i < stage.batches; ++i) {
            const auto batch = reader.next();
            if (!batch) break;
            EXPECT_EQ(values(batch->columns[0]), batch->rows);
            all.insert(all.end(), batch->rows.begin(), batch->rows.end());
          }
          after = reader.done_after(stage.batches);
        }
        EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1u);
        done = after;
      }
      std::sort(all.begin(), all.end());
      std::vector<std::int64_t> expected;
      for (std::int64_t row = 0; row < rows; ++row)
        if (selection.contains(row)) expected.push_back(row);
      ASSERT_EQ(all, expected) << "shuffle " << shuffle;
      EXPECT_EQ(done, (RowRanges{{0, static_cast<std::int64_t>(expected.size())}}));
    }
}

TEST(TableReader, AnEpochContinuesOnTheSameRanksAsIfItHadNotStopped) {
  const auto table = numbered(1003);
  for (int rank = 0; rank < 3; ++rank) {
    const TableReaderOptions options{
        .columns = {0, 1}, .batch = 9, .rank = rank, .world_size = 3, .window_bytes = 3000};
    TableReader whole(table, RowSelection(), options), parts(table, RowSelection(), options);
    const auto expected = epoch_of(whole, 2, 9);
    std::vector<std::int64_t> rows;
    parts.start(2);
    for (int i = 0; i < 13; ++i) {
      const auto batch = parts.next();
      rows.insert(rows.end(), batch->rows.begin(), batch->rows.end());
    }
    parts.start(2, parts.done_after(13));
    while (const auto batch = parts.next()) rows.insert(rows.end(), batch->rows.begin(), batch->rows.end());
    EXPECT_EQ(rows, expected);
  }
}

TEST(TableReader, TheOrderOfAnEpochDoesNotDependOnTheRanks) {
  const auto table = numbered(5000);
  const auto order = [&](int ranks) {
    std::vector<std::int64_t> rows;
    for (int rank = 0; rank < ranks; ++rank) {
      TableReader reader(
          table, RowSelection(),
          {.columns = {0, 1}, .batch = 64, .rank = rank, .world_size = ranks, .window_bytes = 20'000});
      const auto own = epoch_of(reader, 1, 64);
      rows.insert(rows.end(), own.begin(), own.end());
    }
    return rows;
  };
  EXPECT_EQ(order(1), order(3));
}

TEST(TableReader, APositionOfAnotherTableIsRefused) {
  const auto table = numbered(100);
  TableReader reader(table, RowSelection(), {.columns = {0}});
  for (const auto& wrong : std::vector<RowRanges>{{{0, 101}}, {{5, 3}}, {{5, 10}, {8, 12}}, {{-1, 4}}})
    EXPECT_THROW(reader.start(0, wrong), CorruptInput);
  TableReader other(table, RowSelection(), {.columns = {0}, .seed = 2}),
      same(table, RowSelection(), {.columns = {0}});
  EXPECT_NE(reader.order_hash(), other.order_hash());
  EXPECT_EQ(reader.order_hash(), same.order_hash());
}

TEST(TableReader, AnEpochCanBeLeft) {
  const auto table = numbered(20'000);
  TableReader reader(table, RowSelection(), {.columns = {0, 1}, .batch = 10});
  for (int i = 0; i < 20; ++i) {
    reader.start(i);
    EXPECT_TRUE(reader.next());
  }
  EXPECT_EQ(epoch_of(reader, 0, 10).size(), 20'000u);
}

// Rows of a file reach their batches in pieces: short ones through a copy, long ones directly, and with gaps
// of any length.
TEST(TableReader, RowsOfFilesOfAnyLengthReachTheirPlaces) {
  const TemporaryFolder folder;
  for (const std::int64_t values_of_row : {3, 700, 20'000}) {
    const std::int64_t rows = 300;
    const std::vector<std::int64_t> shape = {rows, values_of_row};
    std::vector<std::int32_t> values(static_cast<std::size_t>(rows * values_of_row));
    std::iota(values.begin(), values.end(), 0);
    const auto file = folder / fmt::format("{}.h5", values_of_row);
    auto writer = Hdf5File::create(file);
    writer.write_array("/x", DType::int32, shape, std::as_bytes(std::span(values)));
    writer.close();
    const auto table = open_table(file);
    for (const std::int64_t every : {1, 2, 5})
      for (const bool shuffle : {true, false}) {
        const RowSelection chosen([=](std::int64_t row) { return row % every == 0; });
        std::int64_t seen = 0;
        for (int rank = 0; rank < 2; ++rank) {
          TableReader reader(*table, chosen,
                             {.columns = {0},
                              .batch = 16,
                              .shuffle = shuffle,
                              .rank = rank,
                              .world_size = 2,
                              .window_bytes = 4 << 20});
          for (reader.start(0); const auto batch = reader.next();)
            for (std::size_t i = 0; i < batch->rows.size(); ++i, ++seen) {
              const auto bytes = static_cast<std::size_t>(values_of_row) * sizeof(std::int32_t);
              ASSERT_EQ(batch->rows[i] % every, 0);
              ASSERT_EQ(std::memcmp(batch->columns[0]->data() + i * bytes,
                                    &values[static_cast<std::size_t>(batch->rows[i] * values_of_row)], bytes),
                        0);
            }
        }
        EXPECT_EQ(seen, chosen.count(0, rows));
      }
  }
}

TEST(TableReader, AFileThatBecomesShorterIsRefused) {
  const TemporaryFolder folder;
  const auto file = folder / "x.h5";
  const std::vector<std::int64_t> shape = {100, 1000};
  auto writer = Hdf5File::create(file);
  writer.write_array("/x", DType::float32, shape, std::vector<std::byte>(400'000));
  writer.close();
  const auto table = open_table(file);
  std::filesystem::resize_file(file, 200'000);
  TableReader reader(*table, RowSelection(), {.columns = {0}, .batch = 8});
  reader.start(0);
  EXPECT_THROW(while (reader.next()){}, CorruptInput);
}

// A narrow column whose chunks have many rows must not make the blocks of a wide one larger than a window.
TEST(TableReader, MemoryIsBoundedWhateverTheChunks) {
  class Chunked final : public DataTable {
   public:
    Chunked() {
      rows_ = 10'000;
      columns_ = {{"image", DType::uint8, {4096}}, {"label", DType::uint8, {}}};
    }
    void read(std::size_t, std::int64_t, std::int64_t, std::span<std::byte> out) const override {
      most = std::max(most, out.size());
    }
    std::int64_t chunk_rows(std::size_t column) const override { return column == 0 ? 1 : 10'000; }
    mutable std::size_t most = 0;
  };
  constexpr std::size_t window = 1 << 20;
  for (const bool shuffle : {true, false}) {
    const Chunked table;
    TableReader reader(table, RowSelection(),
                       {.columns = {0, 1}, .batch = 16, .shuffle = shuffle, .window_bytes = window});
    reader.start(0);
    while (reader.next()) {
    }
    EXPECT_GT(table.most, 0u);
    EXPECT_LE(table.most, window);
  }
}

TEST(TableReader, ErrorsOfTheTableReachTheCaller) {
  class Damaged final : public DataTable {
   public:
    Damaged() {
      rows_ = 100;
      columns_ = {{"x", DType::int64, {}}};
    }
    void read(std::size_t, std::int64_t first, std::int64_t, std::span<std::byte>) const override {
      if (first > 50) throw CorruptInput("row 50 is damaged");
    }
    std::int64_t chunk_rows(std::size_t) const override { return 1; }
  };
  const Damaged table;
  TableReader reader(table, RowSelection(), {.columns = {0}, .batch = 5, .shuffle = false});
  reader.start(0);
  EXPECT_THROW(while (reader.next()){}, CorruptInput);
}

TEST(RandomSplit, EachRowIsInOnePart) {
  for (const std::int64_t rows : {2, 10, 1001, 65536}) {
    const std::vector<double> fractions = {0.5, 0.3, 0.2};
    const auto used = rows > 2 ? std::span(fractions) : std::span(fractions).first(0);
    const std::vector<double> halves = {0.5, 0.5};
    const auto parts = random_split(rows, used.empty() ? std::span(halves) : used, 9);
    std::int64_t all = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(
          std::count_if(parts.begin(), parts.end(), [&](const auto& part) { return part.contains(row); }), 1);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double expected = static_cast<double>(rows) * (used.empty() ? 0.5 : fractions[i]);
      EXPECT_NEAR(static_cast<double>(parts[i].count(0, rows)), expected, 1);
      all += parts[i].count(0, rows);
    }
    EXPECT_EQ(all, rows);
  }
}

TEST(RandomSplit, IsRandomAndRepeatable) {
  const std::vector<double> fractions = {0.9, 0.1};
  const auto first = random_split(10'000, fractions, 1)[1], again = random_split(10'000, fractions, 1)[1],
             other = random_split(10'000, fractions, 2)[1];
  int same = 0, common = 0, early = 0;
  for (std::int64_t row = 0; row < 10'000; ++row) {
    same += first.contains(row) == again.contains(row) ? 1 : 0;
    common += first.contains(row) && other.contains(row) ? 1 : 0;
    early += first.contains(row) && row < 5000 ? 1 : 0;
  }
  EXPECT_EQ(same, 10'000);
  EXPECT_NEAR(common, 100, 60);
  EXPECT_NEAR(early, 500, 100);
}

TEST(RandomSplit, RefusesWrongFractions) {
  for (const auto& wrong : std::vector<std::vector<double>>{{0.5}, {0.9, 0.2}, {1.5, -0.5}, {0.5, 0.5, 0}})
    EXPECT_THROW(random_split(100, wrong, 1), UserError);
  EXPECT_THROW(random_split(2, std::vector<double>{0.9, 0.1}, 1), UserError);
}

}  // namespace
}  // namespace farandole
