#include "farandole/comm/mpi/mpi_link.h"

namespace farandole {
namespace {

// Removes the messages that are complete, in order, up to the first that failed. Returns their number.
std::uint64_t take_complete(std::deque<MPI_Request>& requests, int& code) {
  std::uint64_t complete = 0;
  for (; !requests.empty() && code == MPI_SUCCESS; requests.pop_front(), ++complete) {
    int done = 0;
    code = MPI_Test(&requests.front(), &done, MPI_STATUS_IGNORE);
    if (done == 0 || code != MPI_SUCCESS) break;
  }
  return complete;
}

void cancel(std::deque<MPI_Request>& requests) {
  for (auto& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
  requests.clear();
}

}  // namespace

void MpiLink::send(const std::byte* data, std::size_t bytes) {
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer_, 0, comm_, &sends_.emplace_back()),
            "MPI_Isend");
}

void MpiLink::receive(std::byte* data, std::size_t bytes) {
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer_, 0, comm_, &receives_.emplace_back()),
            "MPI_Irecv");
}

// A rank that makes another call sends other sizes after its header. The header is reported first, so that
// its receiver can abandon the link.
bool MpiLink::progress() {
  check_mpi(failure_, "MPI_Test", "a message between nodes");
  const auto sent = take_complete(sends_, failure_);
  const auto received = take_complete(receives_, failure_);
  sent_ += sent;
  received_ += received;
  return sent + received > 0 || failure_ != MPI_SUCCESS;
}

void MpiLink::abandon() {
  cancel(sends_);
  cancel(receives_);
  failure_ = MPI_SUCCESS;
}

void MpiLink::keep_moving() {
  int found = 0;
  check_mpi(MPI_Iprobe(peer_, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

std::vector<std::unique_ptr<Link>> make_mpi_links(MPI_Comm group) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(group, &comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(size_of(group)));
  for (int r = 0; r < size_of(group); ++r)
    if (r != rank_in(group)) links[static_cast<std::size_t>(r)] = std::make_unique<MpiLink>(comm, r);
  return links;
}

}  // namespace farandole
