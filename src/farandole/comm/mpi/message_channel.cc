#include "farandole/comm/mpi/message_channel.h"

#include <chrono>
#include <thread>

#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {

MessageChannel::MessageChannel(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

// The communicator is not freed before MPI_Finalize. Its number would be reused by another communicator,
// which would then receive messages that were not received here.
MessageChannel::~MessageChannel() = default;

void MessageChannel::send(int to, std::span<const std::byte> message) {
  check_mpi(MPI_Send(message.data(), static_cast<int>(message.size()), MPI_BYTE, to, 0, comm_), "MPI_Send");
}

std::optional<Message> MessageChannel::look_for(int from) {
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  int found = 0;
  check_mpi(MPI_Improbe(from, 0, comm_, &found, &handle, &status), "MPI_Improbe");
  if (found == 0) return std::nullopt;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Message message{status.MPI_SOURCE, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
  check_mpi(MPI_Mrecv(message.bytes.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
  return message;
}

std::vector<std::byte> MessageChannel::receive(int from) {
  for (int tests = 0;; ++tests) {
    if (auto message = look_for(from)) return std::move(message->bytes);
    if (tests > 200) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::optional<Message> MessageChannel::receive_any() {
  return look_for(MPI_ANY_SOURCE);
}

}  // namespace farandole
