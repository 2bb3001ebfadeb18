#include "farandole/comm/message_channel.h"

#include <chrono>
#include <thread>

#include "farandole/comm/mpi_check.h"

namespace farandole {

MessageChannel::MessageChannel(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MessageChannel::~MessageChannel() {
  MPI_Comm_free(&comm_);
}

void MessageChannel::send(int to, std::span<const std::byte> message) {
  check_mpi(MPI_Send(message.data(), static_cast<int>(message.size()), MPI_BYTE, to, 0, comm_), "MPI_Send");
}

std::vector<std::byte> MessageChannel::receive(int from) {
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  for (int tests = 0, found = 0;; ++tests) {
    check_mpi(MPI_Improbe(from, 0, comm_, &found, &handle, &status), "MPI_Improbe");
    if (found != 0) break;
    if (tests > 200) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  std::vector<std::byte> message(static_cast<std::size_t>(bytes));
  check_mpi(MPI_Mrecv(message.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return message;
}

}  // namespace farandole
