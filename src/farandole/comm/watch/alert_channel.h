// What threads beside the one that trains tell those of other ranks, mostly that something is wrong. Used by
// one thread, which never waits in it.
#pragma once

#include <list>
#include <mpi.h>
#include <optional>
#include <span>

#include "farandole/comm/watch/peer_watch.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

struct Alert {
  enum class Kind : std::uint32_t {
    here,        // I am alive
    ping,        // are you?
    collecting,  // I sum up the stall in `stalled`
    status,      // what a rank of my node does while others wait in `stalled`
    inquire,     // send me the status of your node: others wait in `stalled`
    loss,        // a rank was lost
    trace,       // somebody asks for the trace (trace_requests.h)
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
  ~AlertChannel();                         // what is still on its way is lost
  AlertChannel(const AlertChannel&) = delete;
  AlertChannel& operator=(const AlertChannel&) = delete;

  void send(int to, Alert alert);
  std::optional<Alert> receive();  // what has come, if anything

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
