#include "farandole/comm/recording/offered_records.h"

#include <span>
#include <spdlog/spdlog.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Rank 0's answer to a rank whose records are not needed. An empty answer requests the records.
const std::vector<std::byte> not_needed{std::byte{1}};

std::span<const Record> next_of(RecordSource& source) try {
  return source.next();
} catch (const Error& error) {
  spdlog::warn("the timeline lacks the remaining records of this rank: {}", error.what());
  return {};
}

}  // namespace

OfferedRecords::OfferedRecords(MessageChannel& channel, int rank)
    : channel_(channel), rank_(rank), facts_(channel.receive(rank)) {}

OfferedRecords::~OfferedRecords() {
  try {
    let_go();
  } catch (const std::exception& error) {
    spdlog::warn("rank {} could not be informed that the merge of the timeline has ended: {}", rank_,
                 error.what());
  }
}

void OfferedRecords::let_go() {
  if (state_ == Rank::waits) channel_.send(rank_, not_needed);
  while (state_ == Rank::sends) next_block();
}

std::vector<std::byte> OfferedRecords::next_block() {
  if (state_ == Rank::is_done) return {};
  if (state_ == Rank::waits) channel_.send(rank_, {});
  state_ = Rank::sends;
  auto block = channel_.receive(rank_);
  if (block.empty()) state_ = Rank::is_done;
  return block;
}

void offer_records(MessageChannel& channel, RecordSource& source) {
  channel.send(0, pack(source.info()));
  if (channel.receive(0) == not_needed) return;
  for (auto block = next_of(source); !block.empty(); block = next_of(source))
    channel.send(0, std::as_bytes(block));
  channel.send(0, {});
}

}  // namespace farandole
