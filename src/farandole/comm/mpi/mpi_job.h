// MPI from its start to its end, and who is who in the job. One object a process, made and destroyed by the
// main thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "farandole/comm/mpi/message_channel.h"
#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/transport.h"

namespace farandole {

class MpiJob {
 public:
  // Throws UserError where this process is alone but its launcher started several ("a world of one in a
  // larger job").
  MpiJob();
  // Ends MPI; a collective operation.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  const RankLayout& layout() const { return layout_; }
  // Collective. Threads of different communicators may communicate at the same time. comm/transport.h picks
  // what it is.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting) const;
  // Among these ranks of the job, numbered there in the order given here. Collective over them alone: each
  // calls it with the same list, the others not at all. Throws UserError where the list names a rank twice,
  // or one that does not exist, or not the caller.
  std::unique_ptr<Communicator> new_communicator(Waiting waiting, std::span<const int> ranks) const;
  // Collective.
  std::unique_ptr<MessageChannel> new_channel() const;
  static std::string library_version();  // "Open MPI v4.1.4", of the library that is loaded
  // Ends all ranks of the job now, with this exit code.
  [[noreturn]] static void abort(int exit_code);

 private:
  struct Runtime {
    Runtime();
    ~Runtime();
  };
  TransportOptions transport() const;

  Runtime runtime_;
  RankLayout layout_;
  MpiTypes types_;
  mutable std::atomic<bool> said_fallback_{false};
};

}  // namespace farandole
