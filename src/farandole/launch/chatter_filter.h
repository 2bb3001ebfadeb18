// Takes what mpirun and srun say about a job's end out of their stderr: the launcher says it in one line. One
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/rank_record.h"

namespace farandole {

// Fed with the pieces of a LineSplitter. What is left out is kept: where no rank reported its end, it is all
// there is.
class ChatterFilter {
 public:
  // What is to be shown of this piece, and of held ones; "" for nothing yet.
  std::string take(std::string_view piece);
  // Nothing more comes, or not for a while: what is held, to be shown.
  std::string flush();
  bool holds() const { return !block_.empty(); }

  const std::string& left_out() const { return left_out_; }            // at most 8 KiB of it
  const std::vector<RankRecord>& records() const { return records_; }  // those that came as marked lines

 private:
  void leave_out(std::string_view text);

  std::string block_;  // of a message that mpirun puts between two lines of dashes
  std::string left_out_;
  std::vector<RankRecord> records_;
};

}  // namespace farandole
