// read_table TABLE COLUMN RANKS shuffled|ordered: reads an epoch of each rank, one after another; prints the
// rows and the rate in GB per second of processor time of the reader and of read(2). Other work on the
// machine disturbs this time less than it disturbs the time of the clock.
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/tables/table_reader.h"
#include "farandole/timeline/counters/counters.h"

int main(int, char** argv) {
  using namespace farandole;
  keep_freed_memory();  // As a session does.
  const auto table = open_table(argv[1]);
  const auto column = table->index_of(argv[2]);
  const int ranks = std::atoi(argv[3]);
  const auto row_bytes = table->columns()[column].row_bytes();
  std::int64_t rows = 0, sum = 0;
  const auto processor_s = [] { return static_cast<double>(ProcessCounters::read().cpu_ns) / 1e9; };
  const double begin = processor_s();
  for (int rank = 0; rank < ranks; ++rank) {
    TableReader reader(*table, RowSelection(),
                       {.columns = {column},
                        .batch = std::max<std::int64_t>(1, (4 << 20) / static_cast<std::int64_t>(row_bytes)),
                        .shuffle = std::strcmp(argv[4], "shuffled") == 0,
                        .rank = rank,
                        .world_size = ranks});
    for (reader.start(0); const auto batch = reader.next();)
      for (const auto row : batch->rows) ++rows, sum += row;
  }
  const double seconds = processor_s() - begin;
  std::vector<std::byte> buffer(std::size_t{4} << 20);
  const auto raw = open_regular_file(argv[1]);
  const double raw_begin = processor_s();
  std::uint64_t bytes = 0;
  while (const auto got = read_bytes(raw.get(), bytes, buffer, argv[1])) bytes += got;
  const double raw_seconds = processor_s() - raw_begin;
  fmt::print("{} rows, sum {}, {:.2f} GB/s, raw {:.2f} GB/s\n", rows, sum,
             static_cast<double>(rows) * static_cast<double>(row_bytes) / seconds / 1e9,
             static_cast<double>(bytes) / raw_seconds / 1e9);
}
