#include "farandole/tables/table_reader.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "farandole/base/quiet_thread.h"

namespace farandole {
namespace {

// Large enough for the full rate of a disk, small enough for a good shuffle of small tables.
constexpr std::size_t target_block_bytes = std::size_t{1} << 20;
constexpr std::int64_t fewest_blocks = 64;
constexpr std::size_t ready_bytes = std::size_t{16} << 20;

void append(Bytes& to, std::span<const std::byte> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

TableReader::TableReader(const DataTable& table, RowSelection selection, TableReaderOptions options)
    : table_(table), selection_(std::move(selection)), options_(std::move(options)) {
  for (const auto column : options_.columns) {
    row_bytes_ += table_.columns()[column].row_bytes();
    chunk_rows_ = std::max(chunk_rows_, table_.chunk_rows(column));
  }
  row_bytes_ = std::max<std::size_t>(row_bytes_, 1);
  const auto rows_of = [&](std::size_t bytes) {
    return static_cast<std::int64_t>(std::max<std::size_t>(1, bytes / row_bytes_));
  };
  const auto wanted =
      std::min(rows_of(target_block_bytes), std::max<std::int64_t>(1, table_.rows() / fewest_blocks));
  block_rows_ = (wanted + chunk_rows_ - 1) / chunk_rows_ * chunk_rows_;
  window_rows_ = std::max(rows_of(options_.window_bytes), block_rows_);
  most_ready_ =
      std::max<std::size_t>(2, ready_bytes / (row_bytes_ * static_cast<std::size_t>(options_.batch)));
  for (std::int64_t first = 0; first < table_.rows(); first += block_rows_) {
    chosen_.push_back(selection_.count(first, std::min(first + block_rows_, table_.rows())));
    total_ += chosen_.back();
  }
  const auto share = [&](int rank) {
    return total_ / options_.world_size * rank + std::min<std::int64_t>(rank, total_ % options_.world_size);
  };
  begin_ = share(options_.rank);
  end_ = share(options_.rank + 1);
}

TableReader::~TableReader() {
  stop();
}

std::int64_t TableReader::batches() const {
  const auto most = (total_ + options_.world_size - 1) / options_.world_size;
  return (most + options_.batch - 1) / options_.batch;
}

void TableReader::start(std::int64_t epoch) {
  stop();
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

// The blocks in the order of the epoch are one sequence of rows, of which this rank has those from begin_ to end_.
std::vector<TableReader::Piece> TableReader::pieces_of(std::int64_t epoch) const {
  std::vector<std::int64_t> order(chosen_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle) {
    std::mt19937_64 random(options_.seed * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(epoch));
    std::shuffle(order.begin(), order.end(), random);
  }
  std::vector<Piece> pieces;
  std::int64_t at = 0;
  for (const auto block : order) {
    const auto count = chosen_[static_cast<std::size_t>(block)];
    const auto from = std::max(begin_, at), to = std::min(end_, at + count);
    if (from < to) pieces.push_back({block, from - at, to - from});
    at += count;
  }
  return pieces;
}

void TableReader::read_epoch(std::int64_t epoch) {
  // Without shuffling, rows that can be read alone are read into their batch.
  if (!options_.shuffle && chunk_rows_ == 1) return read_batches(epoch);
  // Without shuffling, a window is only what is read at once.
  const auto window_rows = options_.shuffle ? window_rows_ : std::max(options_.batch, block_rows_);
  TableBatch window = empty_batch(window_rows + block_rows_);
  std::optional<TableBatch> rest;  // Rows that do not fill a batch yet.
  std::uint64_t number = 0;
  for (const auto& piece : pieces_of(epoch)) {
    read_piece(piece, window);
    if (static_cast<std::int64_t>(window.rows.size()) < window_rows) continue;
    if (!deal(window, epoch, number++, rest)) return;
    window.rows.clear();
    for (auto& column : window.columns) column.clear();
  }
  if (!window.rows.empty() && !deal(window, epoch, number, rest)) return;
  if (rest) push(*std::move(rest));
}

void TableReader::read_batches(std::int64_t epoch) {
  auto batch = empty_batch(options_.batch);
  for (auto piece : pieces_of(epoch)) {
    while (piece.count > 0) {
      const auto count = std::min(piece.count, options_.batch - static_cast<std::int64_t>(batch.rows.size()));
      read_piece({piece.block, piece.skip, count}, batch);
      piece.skip += count;
      piece.count -= count;
      if (static_cast<std::int64_t>(batch.rows.size()) < options_.batch) continue;
      if (!push(std::exchange(batch, empty_batch(options_.batch)))) return;
    }
  }
  if (!batch.rows.empty()) push(std::move(batch));
}

TableBatch TableReader::empty_batch(std::int64_t rows) const {
  TableBatch batch;
  const auto most = static_cast<std::size_t>(std::min(rows, this->rows()));
  batch.rows.reserve(most);
  for (const auto column : options_.columns)
    batch.columns.emplace_back().reserve(most * table_.columns()[column].row_bytes());
  return batch;
}

void TableReader::read_piece(const Piece& piece, TableBatch& window) const {
  const auto first = piece.block * block_rows_;
  const auto block_end = std::min(first + block_rows_, table_.rows());
  std::vector<std::int64_t> rows;
  if (selection_.all()) {
    rows.resize(static_cast<std::size_t>(piece.count));
    std::iota(rows.begin(), rows.end(), first + piece.skip);
  } else {
    auto skip = piece.skip;
    for (auto row = first; row < block_end && static_cast<std::int64_t>(rows.size()) < piece.count; ++row)
      if (selection_.contains(row) && skip-- <= 0) rows.push_back(row);
  }
  window.rows.insert(window.rows.end(), rows.begin(), rows.end());
  const auto span = rows.back() + 1 - rows.front();
  for (std::size_t c = 0; c < options_.columns.size(); ++c) {
    const auto column = options_.columns[c];
    const auto bytes = table_.columns()[column].row_bytes();
    auto& to = window.columns[c];
    if (span == piece.count) {
      const auto before = to.size();
      to.resize(before + static_cast<std::size_t>(span) * bytes);
      table_.read(column, rows.front(), span, std::span(to).subspan(before));
      continue;
    }
    Bytes all(static_cast<std::size_t>(span) * bytes);
    table_.read(column, rows.front(), span, all);
    for (const auto row : rows)
      append(to, std::span(all).subspan(static_cast<std::size_t>(row - rows.front()) * bytes, bytes));
  }
}

// Cuts a window into batches. Returns false if the reader is to stop.
bool TableReader::deal(const TableBatch& window, std::int64_t epoch, std::uint64_t number,
                       std::optional<TableBatch>& rest) {
  std::vector<std::size_t> order(window.rows.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.shuffle) {
    std::seed_seq seeds{options_.seed, static_cast<std::uint64_t>(epoch),
                        static_cast<std::uint64_t>(options_.rank), number};
    std::mt19937_64 random(seeds);
    std::shuffle(order.begin(), order.end(), random);
  }
  const auto batch_rows = static_cast<std::size_t>(options_.batch);
  for (std::size_t next = 0; next < order.size();) {
    TableBatch batch = rest ? *std::exchange(rest, std::nullopt) : empty_batch(options_.batch);
    const auto end = std::min(order.size(), next + batch_rows - batch.rows.size());
    for (std::size_t i = next; i < end; ++i) batch.rows.push_back(window.rows[order[i]]);
    for (std::size_t c = 0; c < options_.columns.size(); ++c) {
      const auto bytes = table_.columns()[options_.columns[c]].row_bytes();
      const auto from = std::span(window.columns[c]);
      auto& to = batch.columns[c];
      if (!options_.shuffle) {
        append(to, from.subspan(next * bytes, (end - next) * bytes));
        continue;
      }
      const auto before = to.size();
      to.resize(before + (end - next) * bytes);
      for (std::size_t i = next; i < end; ++i)
        std::memcpy(to.data() + before + (i - next) * bytes, from.data() + order[i] * bytes, bytes);
    }
    next = end;
    if (batch.rows.size() < batch_rows) {
      rest = std::move(batch);
    } else if (!push(std::move(batch))) {
      return false;
    }
  }
  return true;
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
