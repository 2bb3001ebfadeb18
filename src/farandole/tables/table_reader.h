// Reads this rank's share of a table batch by batch, on a thread of its own, ahead of the training.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/tables/row_selection.h"
#include "farandole/tables/table.h"

namespace farandole {

struct TableBatch {
  std::vector<std::int64_t> rows;  // Their numbers in the table.
  // As the reader's columns: row after row. The reader uses their memory again when nobody refers to
  // it any more.
  std::vector<std::shared_ptr<Bytes>> columns;
};

struct TableReaderOptions {
  std::vector<std::size_t> columns{};  // Numbers of columns of the table.
  std::int64_t batch = 64;             // Rows; the last batch of an epoch may have fewer.
  bool shuffle = true;
  std::uint64_t seed = 1;
  int rank = 0, world_size = 1;
  // Memory for rows that are shuffled together. With what is read ahead, a reader needs up to twice as much.
  std::size_t window_bytes = std::size_t{32} << 20;
};

// Rows of an epoch's order: [first, end).
struct RowRange {
  std::int64_t first, end;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};
using RowRanges = std::vector<RowRange>;  // Ascending, without overlaps.

// Each chosen row is read once per epoch, by one rank. The ranks' numbers of rows differ by at most one. Rows
// are read by blocks of consecutive rows. A block has at least one chunk of the file, if the chunk fits into
// a window. To shuffle, the blocks are permuted by seed and epoch; then the rows within a window are
// permuted. This order does not depend on the ranks, and each rank reads an equal part of it. So another
// number of ranks can continue the epoch.
class TableReader {
 public:
  // `table` must outlive this object.
  TableReader(const DataTable& table, RowSelection selection, TableReaderOptions options);
  ~TableReader();
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  // Begins an epoch, also if the one before has not been read to its end. The rows of `done` are left out.
  // Throws: CorruptInput if `done` is no set of ranges of this table.
  void start(std::int64_t epoch, RowRanges done = {});
  // Returns the next batch, or nullopt after the last one.
  // Throws: what the table throws.
  std::optional<TableBatch> next();
  // Returns the rows of the epoch's order that have been read when every rank has taken `batches` batches
  // since start(), together with those that start() left out.
  RowRanges done_after(std::int64_t batches) const;

  // Rows that all ranks read per epoch.
  std::int64_t selected_rows() const { return total_; }
  // Rows that all ranks read after start(), which leaves some out; before start(), all rows.
  std::int64_t left_rows() const { return left_; }
  // Rows that this rank reads after start().
  std::int64_t rows() const { return rows_; }
  // Batches after start() of the rank with the most batches.
  std::int64_t batches() const;
  // Batches after start() that are full on every rank.
  std::int64_t full_batches() const { return left_ / options_.world_size / options_.batch; }
  // Hash of everything that determines the order of an epoch.
  std::uint64_t order_hash() const;

 private:
  struct Pool;  // Memory of batches that are no longer used.
  struct Run {  // Rows that are consecutive in the table and in a batch.
    std::int64_t row, count;
    std::size_t batch, place;
  };
  struct Scratch {  // Memory that is used again.
    std::vector<std::int64_t> rows;
    std::vector<Run> runs;
    std::vector<RowPiece> pieces;
    Bytes bytes;
  };
  struct Window {
    std::span<const std::int64_t> blocks;
    std::int64_t begin = 0, rows = 0;   // In the order of the epoch.
    std::vector<std::uint32_t> places;  // In the window, of its rows in the order of the table.
  };
  RowRanges share(int rank) const;
  void read_epoch(std::int64_t epoch);
  bool deal(const Window& window, RowRange part, std::optional<TableBatch>& rest, Scratch& scratch);
  void read_runs(std::span<const Run> runs, std::vector<TableBatch>& batches, Scratch& scratch) const;
  std::shared_ptr<Bytes> memory_for(std::size_t column, std::size_t bytes);
  void chosen_rows(std::int64_t block, std::vector<std::int64_t>& rows) const;
  bool push(TableBatch batch);
  void stop();

  const DataTable& table_;
  const RowSelection selection_;
  const TableReaderOptions options_;
  std::size_t row_bytes_ = 0;
  std::int64_t block_rows_ = 1, window_rows_ = 1;
  std::size_t most_ready_ = 2;
  std::vector<std::int64_t> chosen_;  // Number of chosen rows of each block.
  std::int64_t total_ = 0, left_ = 0, rows_ = 0;
  RowRanges done_, left_ranges_;
  std::shared_ptr<Pool> pool_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TableBatch> ready_;
  std::exception_ptr error_;
  bool ended_ = true, stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
