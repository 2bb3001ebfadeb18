#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/watch/watch_post.h"

namespace farandole {

// Small enough for MPI to send it without waiting for the receiver.
static_assert(sizeof(Alert) < 2048);

AlertChannel::AlertChannel(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
}

AlertChannel::~AlertChannel() {
  // A rank that never receives must not delay the end. Its message, with the memory, is left to MPI.
  for (auto& one : sending_) {
    int done = 0;
    MPI_Test(&one.request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      [[maybe_unused]] auto* left_to_mpi = new std::list<Sending>(std::move(sending_));
      break;
    }
  }
  // The communicator is not freed before MPI_Finalize. Its number would be reused by another communicator. A
  // late message would count there, and that communicator would then wait forever for its own messages.
}

// Errors are ignored, because they only mean that the peer has ended.
void AlertChannel::send(int to, Alert alert) {
  alert.from = rank_;
  auto& one = sending_.emplace_back();
  one.alert = alert;
  if (MPI_Isend(&one.alert, sizeof one.alert, MPI_BYTE, to, 0, comm_, &one.request) != MPI_SUCCESS)
    sending_.pop_back();
}

std::optional<Alert> AlertChannel::receive() {
  sending_.remove_if([](Sending& one) {
    int done = 0;
    return MPI_Test(&one.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  if (MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &found, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS || found == 0)
    return std::nullopt;
  Alert alert;
  if (MPI_Mrecv(&alert, sizeof alert, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    return std::nullopt;
  return alert;
}

}  // namespace farandole
