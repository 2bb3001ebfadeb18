// MPI from its start to its end, and the position of each rank in the job. There is one object per process.
// Thread safety: only the main thread may create and destroy this.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "farandole/comm/job/transport.h"
#include "farandole/comm/mpi/message_channel.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/queue/point_to_point.h"
#include "farandole/comm/rank_layout.h"

namespace farandole {

class MpiJob {
 public:
  // Starts MPI, unless the program has done so.
  // Throws: UserError if this process is alone although its launcher started several ("a world of one
  // in a larger job"), if the job also has other programs, or if the program's MPI does not let
  // several threads communicate.
  MpiJob();
  // Ends MPI, unless the program has started it.
  // Collective: every rank of the group must call this in the same order.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  const RankLayout& layout() const { return layout_; }
  // Chooses how the ranks of later communicators exchange data; before, FARANDOLE_TRANSPORT decides.
  // Collective: every rank of the job must call this with the same value.
  void use_transport(Transport transport);
  Transport transport() const { return transport_; }
  // Creates a communicator of all ranks of the job; comm/job/transport.h chooses its kind. Threads with
  // different communicators may communicate at the same time.
  // Throws: UserError on all ranks if the values cannot travel as `wire` says.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting, Wire wire = Wire::exact) const;
  // Creates a communicator of these ranks of the job, numbered in the given order. Each of them calls this
  // with the same list; other ranks do not call it.
  // Throws: UserError if the list names a rank twice, a rank that does not exist, or not the caller.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting, std::span<const int> ranks,
                                                 Wire wire = Wire::exact) const;
  // Returns the value of the first rank of the list.
  // Throws: UserError as new_communicator().
  // Collective: every rank of the list must call this in the same order.
  int value_of_first(std::span<const int> ranks, int value) const;
  // Messages between the ranks of the job, or between these. `progress` must outlive the result.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<PointToPoint> new_messages(MessageProgress& progress) const;
  std::unique_ptr<PointToPoint> new_messages(MessageProgress& progress, std::span<const int> ranks) const;
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<MessageChannel> new_channel() const;
  // Calls this when the program ends MPI before this object does, while MPI still works. The function may
  // destroy this object. The last one replaces the others.
  void before_finalize(std::function<void()> function);
  // From now on, the end of MPI on one node does not wait for ranks that work on. The connections of another
  // library close with the process, which its ranks may have to notice. On several nodes it still waits,
  // because Open MPI ends a job in which a message cannot be sent.
  void end_alone();
  // How the nodes exchange data and why, as in "TCP between nodes, 128 KiB at once (…)". std::nullopt if
  // there is no communicator of several nodes yet.
  std::optional<std::string> between_nodes() const;
  static std::string library_version();  // "Open MPI v4.1.4", of the loaded library

 private:
  struct Runtime {
    Runtime();
    ~Runtime();
    std::function<void()> before_finalize;

   private:
    bool is_own_ = true;  // else the program has started MPI, or ends it
    int attribute_ = MPI_KEYVAL_INVALID;
  };
  TransportOptions options(Wire wire) const;

  Runtime runtime_;
  RankLayout layout_;
  MpiTypes types_;
  Transport transport_ = requested_transport();
  mutable std::atomic<bool> said_fallback_{false};
  mutable std::mutex links_mutex_;
  mutable std::optional<LinkChoice> links_;  // set by the first communicator of several nodes
};

}  // namespace farandole
