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
#include <string>
#include <thread>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/tables/row_selection.h"
#include "farandole/tables/table.h"

namespace farandole {

struct TableBatch {
  std::vector<std::int64_t> rows;  // Their numbers in the table.
  std::vector<Bytes> columns;      // As the reader's columns: row after row.
};

struct TableReaderOptions {
  std::vector<std::size_t> columns{};  // Of the table.
  std::int64_t batch = 64;             // Rows; the last batch of an epoch may have fewer.
  bool shuffle = true;
  std::uint64_t seed = 1;
  int rank = 0, world_size = 1;
  // Memory for rows that are shuffled together. With what is read ahead, a reader needs about twice as much.
  std::size_t window_bytes = std::size_t{32} << 20;
};

// In each epoch every chosen row is read once by one of the ranks, and the ranks' numbers of rows differ by at most one. Rows
// are read in blocks of consecutive rows, at least as large as the chunks of the file. To shuffle, the blocks of the
// table are permuted by seed and epoch and divided among the ranks, and the rows of the blocks that fill a window are permuted.
class TableReader {
 public:
  // `table` must outlive this object.
  TableReader(const DataTable& table, RowSelection selection, TableReaderOptions options);
  ~TableReader();
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  // Begins an epoch, also if the one before has not been read to its end.
  void start(std::int64_t epoch);
  // Returns the next batch, or nullopt after the last one.
  // Throws: what the table throws.
  std::optional<TableBatch> next();

  std::int64_t selected_rows() const { return total_; }  // By all ranks in an epoch.
  std::int64_t rows() const { return end_ - begin_; }    // By this rank.
  std::int64_t batches() const;                          // In an epoch, of the rank that has most.

 private:
  struct Piece {  // Chosen rows of a block, in the order of the table: those number `skip` to `skip + count`.
    std::int64_t block, skip, count;
  };
  std::vector<Piece> pieces_of(std::int64_t epoch) const;
  void read_epoch(std::int64_t epoch);
  void read_piece(const Piece& piece, TableBatch& window) const;
  void read_batches(std::int64_t epoch);
  TableBatch empty_batch(std::int64_t rows) const;
  bool deal(const TableBatch& window, std::int64_t epoch, std::uint64_t number,
            std::optional<TableBatch>& rest);
  bool push(TableBatch batch);
  void stop();

  const DataTable& table_;
  const RowSelection selection_;
  const TableReaderOptions options_;
  std::size_t row_bytes_ = 0;
  std::int64_t chunk_rows_ = 1, block_rows_ = 1, window_rows_ = 1;
  std::size_t most_ready_ = 2;
  std::vector<std::int64_t> chosen_;  // Number of chosen rows of each block.
  std::int64_t total_ = 0, begin_ = 0, end_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TableBatch> ready_;
  std::exception_ptr error_;
  bool ended_ = true, stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
