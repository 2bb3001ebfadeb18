// Links over MPI, for networks on which MPI is faster than TCP.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <mpi.h>
#include <vector>

#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/net/link.h"

namespace farandole {

class MpiLink : public Link {
 public:
  // `comm` is used by links only. All links of a rank share it. It is not freed before MPI_Finalize: its
  // number would be reused by another communicator, which would receive messages that were not received here.
  MpiLink(MPI_Comm comm, int peer) : comm_(comm), peer_(peer) {}

  void send(const std::byte* data, std::size_t bytes) override;
  void receive(std::byte* data, std::size_t bytes) override;
  bool progress() override;
  void abandon() override;
  bool abandons_at_once() const override {
    return false;
  }  // MPI cannot cancel a message that has been matched.
  void keep_moving() override;

 private:
  MPI_Comm comm_;
  int peer_;
  std::deque<MPI_Request> sends_, receives_;
  int failure_ = MPI_SUCCESS;
};

// Creates a link to every other rank of `group`, over a duplicate of it. Returns the links by rank, null
// for this rank.
// Collective: every rank of the group must call this in the same order.
std::vector<std::unique_ptr<Link>> make_mpi_links(MPI_Comm group);

}  // namespace farandole
