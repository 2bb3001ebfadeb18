#include "farandole/tables/table_reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <random>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

// Large enough for the full rate of a disk, small enough for a good shuffle of small tables.
constexpr std::size_t target_block_bytes = std::size_t{1} << 20;
constexpr std::int64_t fewest_blocks = 64;
constexpr std::size_t ready_bytes = std::size_t{16} << 20;

std::int64_t rows_of(const RowRanges& ranges) {
  std::int64_t rows = 0;
  for (const auto& [first, end] : ranges) rows += end - first;
  return rows;
}

// Returns rows `from` to `to` of `ranges`, counted in their order.
RowRanges part_of(const RowRanges& ranges, std::int64_t from, std::int64_t to) {
  RowRanges part;
  std::int64_t at = 0;
  for (const auto& [first, end] : ranges) {
    const auto begin = first + std::max<std::int64_t>(from - at, 0), stop = std::min(end, first + to - at);
    if (begin < stop) part.push_back({begin, stop});
    at += end - first;
  }
  return part;
}

}  // namespace

// New memory costs more than the rows that it takes: the kernel clears each of its pages.
struct TableReader::Pool {
  std::mutex mutex;
  std::vector<std::vector<std::unique_ptr<Bytes>>> unused;  // By column.
};

TableReader::TableReader(const DataTable& table, RowSelection selection, TableReaderOptions options)
    : table_(table), selection_(std::move(selection)), options_(std::move(options)) {
  for (const auto column : options_.columns) row_bytes_ += table_.columns()[column].row_bytes();
  row_bytes_ = std::max<std::size_t>(row_bytes_, 1);
  const auto rows_in = [&](std::size_t bytes) {
    return static_cast<std::int64_t>(std::max<std::size_t>(1, bytes / row_bytes_));
  };
  window_rows_ = rows_in(options_.window_bytes);
  std::int64_t chunk_rows = 1;
  for (const auto column : options_.columns)
    if (const auto rows = table_.chunk_rows(column); rows <= window_rows_)
      chunk_rows = std::max(chunk_rows, rows);
  const auto wanted =
      std::min(rows_in(target_block_bytes), std::max<std::int64_t>(1, table_.rows() / fewest_blocks));
  block_rows_ = (wanted + chunk_rows - 1) / chunk_rows * chunk_rows;
  window_rows_ = std::max(window_rows_, block_rows_);
  most_ready_ =
      std::max<std::size_t>(2, ready_bytes / (row_bytes_ * static_cast<std::size_t>(options_.batch)));
  for (std::int64_t first = 0; first < table_.rows(); first += block_rows_) {
    chosen_.push_back(selection_.count(first, std::min(first + block_rows_, table_.rows())));
    total_ += chosen_.back();
  }
  left_ranges_ = {{0, total_}};
  left_ = total_;
  rows_ = rows_of(share(options_.rank));
  pool_ = std::make_shared<Pool>();
  pool_->unused.resize(options_.columns.size());
}

TableReader::~TableReader() {
  stop();
}

std::int64_t TableReader::batches() const {
  const auto most = (left_ + options_.world_size - 1) / options_.world_size;
  return (most + options_.batch - 1) / options_.batch;
}

RowRanges TableReader::share(int rank) const {
  const auto begin = [&](int r) {
    return left_ / options_.world_size * r + std::min<std::int64_t>(r, left_ % options_.world_size);
  };
  return part_of(left_ranges_, begin(rank), begin(rank + 1));
}

RowRanges TableReader::done_after(std::int64_t batches) const {
  auto done = done_;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const auto read = part_of(share(rank), 0, batches * options_.batch);
    done.insert(done.end(), read.begin(), read.end());
  }
  std::sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  RowRanges joined;
  for (const auto& range : done) {
    if (!joined.empty() && joined.back().end == range.first)
      joined.back().end = range.end;
    else
      joined.push_back(range);
  }
  return joined;
}

std::uint64_t TableReader::order_hash() const {
  std::uint64_t hash = options_.seed;
  const auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  for (const std::int64_t value : {std::int64_t{options_.shuffle}, block_rows_, window_rows_}) add(value);
  for (const auto chosen : chosen_) add(chosen);
  return hash;
}

void TableReader::start(std::int64_t epoch, RowRanges done) {
  stop();
  left_ranges_.clear();
  std::int64_t at = 0;
  for (const auto& [first, end] : done) {
    if (first < at || end < first || end > total_)
      throw CorruptInput(fmt::format(
          "the checkpoint's position does not fit {}, whose epochs have {} rows; use the table of the checkpoint",
          table_.source(), total_));
    if (at < first) left_ranges_.push_back({at, first});
    at = end;
  }
  if (at < total_) left_ranges_.push_back({at, total_});
  done_ = std::move(done);
  left_ = rows_of(left_ranges_);
  rows_ = rows_of(share(options_.rank));
  ready_.clear();
  error_ = nullptr;
  ended_ = stopping_ = false;
  thread_ = start_quiet_thread([this, epoch] {
    std::exception_ptr error;
    try {
      read_epoch(epoch);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    ended_ = true;
    changed_.notify_all();
  });
}

void TableReader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<TableBatch> TableReader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  auto batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

void TableReader::read_epoch(std::int64_t epoch) {
  std::vector<std::int64_t> order(chosen_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle) {
    std::mt19937_64 random(options_.seed * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(epoch));
    std::shuffle(order.begin(), order.end(), random);
  }
  // Without shuffling, a window is only what is read at once.
  const auto window_rows = options_.shuffle ? window_rows_ : std::max(options_.batch, block_rows_);
  const auto own = share(options_.rank);
  std::optional<TableBatch> rest;  // Rows that do not fill a batch yet.
  Window window;
  Scratch scratch;
  std::uint64_t number = 0;
  for (std::size_t first = 0, end = 0; first < order.size();
       first = end, window.begin += window.rows, ++number) {
    for (window.rows = 0; end < order.size() && window.rows < window_rows; ++end)
      window.rows += chosen_[static_cast<std::size_t>(order[end])];
    window.blocks = std::span(order).subspan(first, end - first);
    bool shuffled = false;
    for (const auto& range : own) {
      const RowRange part{std::max(range.first, window.begin),
                          std::min(range.end, window.begin + window.rows)};
      if (part.first >= part.end) continue;
      if (!std::exchange(shuffled, true)) {
        window.places.resize(static_cast<std::size_t>(window.rows));
        std::iota(window.places.begin(), window.places.end(), 0);
        std::seed_seq seeds{options_.seed, static_cast<std::uint64_t>(epoch), number};
        if (options_.shuffle)
          std::shuffle(window.places.begin(), window.places.end(), std::mt19937_64(seeds));
      }
      if (!deal(window, part, rest, scratch)) return;
    }
  }
  if (rest) push(*std::move(rest));
}

std::shared_ptr<Bytes> TableReader::memory_for(std::size_t column, std::size_t bytes) {
  std::unique_ptr<Bytes> memory;
  {
    const std::lock_guard lock(pool_->mutex);
    if (auto& unused = pool_->unused[column]; !unused.empty()) {
      memory = std::move(unused.back());
      unused.pop_back();
    }
  }
  if (!memory) memory = std::make_unique<Bytes>();
  memory->clear();
  memory->reserve(bytes);
  return {memory.release(), [pool = pool_, column](Bytes* released) {
            std::unique_ptr<Bytes> owner(released);
            const std::lock_guard lock(pool->mutex);
            pool->unused[column].push_back(std::move(owner));
          }};
}

void TableReader::chosen_rows(std::int64_t block, std::vector<std::int64_t>& rows) const {
  rows.clear();
  const auto first = block * block_rows_, end = std::min(first + block_rows_, table_.rows());
  for (auto row = first; row < end; ++row)
    if (selection_.contains(row)) rows.push_back(row);
}

// Reads a part of a window, in the order of the epoch, into batches. Each row is copied at most once: the
// rows of a block are still in the cache when they are copied to their places. Returns false if the reader
// is to stop.
bool TableReader::deal(const Window& window, RowRange part, std::optional<TableBatch>& rest,
                       Scratch& scratch) {
  const auto before = rest ? rest->rows.size() : 0;
  const auto batch_rows = static_cast<std::size_t>(options_.batch);
  const auto all = before + static_cast<std::size_t>(part.end - part.first);
  std::vector<TableBatch> batches((all + batch_rows - 1) / batch_rows);
  if (rest) batches.front() = *std::exchange(rest, std::nullopt);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto rows = std::min(batch_rows, all - i * batch_rows);
    auto& batch = batches[i];
    batch.rows.resize(rows);
    batch.columns.resize(options_.columns.size());
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const auto bytes = table_.columns()[options_.columns[c]].row_bytes();
      auto& column = batch.columns[c];
      // There is room for a whole batch: if the last batch is not full, the next window fills it.
      if (!column) column = memory_for(c, std::min(batch_rows, static_cast<std::size_t>(rows_)) * bytes);
      column->resize(rows * bytes);
    }
  }
  auto& rows = scratch.rows;
  auto& runs = scratch.runs;
  std::size_t index = 0;  // Number of a row in the window.
  for (const auto block : window.blocks) {
    chosen_rows(block, rows);
    runs.clear();
    for (const auto row : rows) {
      const auto at = window.begin + window.places[index++];
      if (at < part.first || at >= part.end) continue;
      const auto place = before + static_cast<std::size_t>(at - part.first);
      const auto batch = place / batch_rows, within = place % batch_rows;
      batches[batch].rows[within] = row;
      if (!runs.empty() && runs.back().row + runs.back().count == row && runs.back().batch == batch &&
          runs.back().place + static_cast<std::size_t>(runs.back().count) == within)
        ++runs.back().count;
      else
        runs.push_back({row, 1, batch, within});
    }
    if (!runs.empty()) read_runs(runs, batches, scratch);
  }
  for (auto& batch : batches) {
    if (batch.rows.size() < batch_rows)
      rest = std::move(batch);
    else if (!push(std::move(batch)))
      return false;
  }
  return true;
}

// The runs are those of a block, in the order of the table.
void TableReader::read_runs(std::span<const Run> runs, std::vector<TableBatch>& batches,
                            Scratch& scratch) const {
  for (std::size_t c = 0; c < options_.columns.size(); ++c) {
    const auto column = options_.columns[c];
    const auto bytes = table_.columns()[column].row_bytes();
    auto& pieces = scratch.pieces;
    pieces.clear();
    auto next = runs.front().row;
    for (const auto& run : runs) {
      if (next < run.row) pieces.push_back({run.row - next, nullptr});
      pieces.push_back({run.count, batches[run.batch].columns[c]->data() + run.place * bytes});
      next = run.row + run.count;
    }
    table_.read_pieces(column, runs.front().row, pieces, scratch.bytes);
  }
}

bool TableReader::push(TableBatch batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_.size() < most_ready_ || stopping_; });
  if (stopping_) return false;
  ready_.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

}  // namespace farandole
