// Proxy for a remote rank's records. Its facts are available immediately, its records block by block if
// they are wanted. The remote rank waits in offer_records() until the destructor releases it, also
// after a failed merge.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/merge/record_source.h"

namespace farandole {

class OfferedRecords {
 public:
  // Waits for the rank's offer. The channel must outlive this object.
  OfferedRecords(MessageChannel& channel, int rank);
  ~OfferedRecords();
  OfferedRecords(const OfferedRecords&) = delete;
  OfferedRecords& operator=(const OfferedRecords&) = delete;

  RankInfo info() const { return unpack(facts_); }  // throws CorruptInput
  std::vector<std::byte> next_block();              // empty at the end

 private:
  enum class Rank { waits, sends, is_done };

  void let_go();

  MessageChannel& channel_;
  const int rank_;
  Rank state_ = Rank::waits;
  const std::vector<std::byte> facts_;
};

// Returns when rank 0 has the records or does not need them. Records that can no longer be read are left out.
void offer_records(MessageChannel& channel, RecordSource& source);

}  // namespace farandole
