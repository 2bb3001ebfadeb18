// The ranks of the job: how they find each other, the position of each of them, and their communicators.
// There is one object per process.
// Thread safety: only the main thread may create and destroy this.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "farandole/comm/control/control_plane.h"
#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/job/transport.h"
#include "farandole/comm/mpi/mpi_runtime.h"
#include "farandole/comm/queue/point_to_point.h"
#include "farandole/comm/rank_layout.h"

namespace farandole {

class World {
 public:
  // Rank and size are what the launcher says; the ranks then meet over sockets. MPI is started only in a
  // job on several nodes that Open MPI has started, or if the transport is `mpi`: by new_communicator()
  // of all ranks.
  // With `limit`, no rank waits longer for the others.
  // Throws: UserError if this process is alone although its launcher started several ("a world of one
  // in a larger job"), or if the job also has other programs. Error if a rank does not come within the limit.
  // Collective: every rank of the job must call this in the same order.
  explicit World(std::optional<std::chrono::nanoseconds> limit = std::nullopt);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const RankLayout& layout() const { return layout_; }
  ControlPlane& control() { return *control_; }
  const MpiRuntime* mpi() const { return mpi_.get(); }  // null unless it runs
  // Starts MPI, also on one node, unless it runs.
  // Throws: as MpiRuntime.
  // Collective: every rank of the job must call this in the same order.
  void start_mpi();
  // Chooses how the ranks of later communicators exchange data; before, FARANDOLE_TRANSPORT decides.
  // Collective: every rank of the job must call this with the same value.
  void use_transport(Transport transport);
  Transport transport() const { return transport_; }
  // Creates a communicator of all ranks of the job; comm/job/transport.h chooses its kind. Threads with
  // different communicators may communicate at the same time.
  // Throws: UserError on all ranks if the values cannot travel as `wire` says.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting, Wire wire = Wire::exact);
  // Creates a communicator of these ranks of the job, numbered in the given order. Each of them calls this
  // with the same list; other ranks do not call it.
  // Throws: UserError if the list names a rank twice, a rank that does not exist, or not the caller.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting, std::span<const int> ranks,
                                                 Wire wire = Wire::exact);
  // Returns the value of the first rank of the list.
  // Throws: UserError as new_communicator().
  // Collective: every rank of the list must call this in the same order.
  int value_of_first(std::span<const int> ranks, int value);
  // Messages between the ranks of the job, or between these. `tickets` must outlive the result.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<PointToPoint> new_messages(Tickets& tickets);
  std::unique_ptr<PointToPoint> new_messages(Tickets& tickets, std::span<const int> ranks);
  // Among all ranks of the job.
  // Collective: every rank of the job must call this in the same order.
  std::unique_ptr<MessageChannel> new_channel();
  // Calls this when the program ends MPI before this object does, if MPI runs here. The function may
  // destroy this object.
  void before_finalize(std::function<void()> function);
  // How the nodes exchange data and why, as in "TCP between nodes, 128 KiB at once (…)". std::nullopt if
  // there is no communicator of several nodes yet.
  std::optional<std::string> between_nodes() const;
  static std::string library_version();  // "Open MPI v4.1.4", of the loaded library

 private:
  void check(std::span<const int> ranks) const;
  void start_mpi_if_needed();
  TransportOptions options(Wire wire);

  std::unique_ptr<MpiRuntime> mpi_;
  std::unique_ptr<ControlPlane> control_;
  RankLayout layout_;
  Transport transport_ = requested_transport();
  std::function<void()> before_finalize_;
  std::atomic<bool> said_fallback_{false};
  mutable std::mutex links_mutex_;
  std::optional<LinkChoice> links_;  // set by the first communicator of several nodes
};

// The layout of the ranks that have come, as this one sees it.
// Collective: every rank that has come must call this in the same order.
RankLayout layout_of(ControlPlane& control);

// Ends all ranks of the job at once; after a lost peer, a supervised rank ends alone, and its
// supervisor the job.
[[noreturn]] void abort_job(ControlPlane* control, int exit_code);

}  // namespace farandole
