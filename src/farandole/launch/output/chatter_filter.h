// Removes from stderr the messages of mpirun and srun about the end of a job. The launcher prints
// its own line instead.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/supervisor/rank_record.h"

namespace farandole {

// The input is the pieces of a LineSplitter. Removed text is kept, because it is the only evidence if no rank
// has reported its end.
class ChatterFilter {
 public:
  // Returns the part of this piece and of earlier held pieces that can be shown; "" if nothing
  // can be shown yet.
  std::string take(std::string_view piece);
  // Returns the held pieces. Call this at the end of the input, or if no input has arrived for some time.
  std::string flush();
  bool holds() const { return !block_.empty(); }

  const std::string& left_out() const { return left_out_; }  // At most 8 KiB.
  // Records that arrived as marked lines.
  const std::vector<RankRecord>& records() const { return records_; }

 private:
  void leave_out(std::string_view text);

  std::string block_;  // Part of a message that mpirun prints between two lines of dashes.
  std::string left_out_;
  std::vector<RankRecord> records_;
};

}  // namespace farandole
