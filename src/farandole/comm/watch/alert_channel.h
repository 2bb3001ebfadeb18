// Alerts between the watchdog threads of different ranks, mostly about problems.
// Thread safety: none; use from one thread at a time. No call waits.
#pragma once

#include <list>
#include <mpi.h>
#include <optional>
#include <span>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

struct Alert {
  enum class Kind : std::uint32_t {
    here,        // I am alive
    ping,        // are you alive?
    collecting,  // I summarize the stall in `stalled`
    status,      // the status of a rank of my node while others wait in `stalled`
    inquire,     // send me the statuses of your node, because others wait in `stalled`
    loss,        // a rank was lost
    trace,       // the trace was requested (trace_requests.h)
  };
  Kind kind = Kind::here;
  std::int32_t from = -1;
  CallKey stalled;
  std::int32_t lost_rank = -1, lost_pid = 0;
  char lost_cause[80] = {};
  RankStatus status;
};

class AlertChannel {
 public:
  explicit AlertChannel(MPI_Comm parent);  // collective
  ~AlertChannel();                         // drops alerts that were not sent completely
  AlertChannel(const AlertChannel&) = delete;
  AlertChannel& operator=(const AlertChannel&) = delete;

  void send(int to, Alert alert);
  std::optional<Alert> receive();  // returns an alert that has arrived; does not wait

 private:
  struct Sending {
    Alert alert;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::list<Sending> sending_;  // MPI reads from here
};

}  // namespace farandole
