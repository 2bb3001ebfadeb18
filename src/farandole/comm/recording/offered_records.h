// Another rank's records as rank 0 has them on offer: its facts at once, its records block by block if they
// are wanted. The rank waits until it knows; the end of this object lets it go, whatever became of the merge.
// offer_records() is the other side. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/merge/record_source.h"

namespace farandole {

class OfferedRecords {
 public:
  // Waits for the rank's offer. The channel outlives this object.
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

// Returns when rank 0 has them or does without. Records that cannot be read any more are left out.
void offer_records(MessageChannel& channel, RecordSource& source);

}  // namespace farandole
