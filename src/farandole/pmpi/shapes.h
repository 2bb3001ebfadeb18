// The shapes of the arguments of MPI's functions, and the details that are recorded for each shape.
// describe() runs on the calling thread after the function has succeeded. It ignores trailing arguments that
// it does not need, for example a request.
// Thread safety: any thread may call this at any time.
//
// Bytes are counted as in Farandole's own collectives:
// - message: its size, or the largest size that a receive accepts if the received size is unknown;
// - reduction and broadcast: the buffer;
// - gather and scatter: all data on the root, this rank's data elsewhere;
// - all-to-all: the data that this rank sends to all ranks.
#pragma once

#include <mpi.h>

#include "farandole/timeline/event.h"

namespace farandole::pmpi {

inline std::uint64_t size_of(MPI_Datatype type) {
  int size = 0;
  if (type != MPI_DATATYPE_NULL) PMPI_Type_size(type, &size);
  return size > 0 ? static_cast<std::uint64_t>(size) : 0;
}

inline std::uint64_t bytes_of(int count, MPI_Datatype type) {
  return count > 0 ? static_cast<std::uint64_t>(count) * size_of(type) : 0;
}

// Builds the details of a call step by step.
struct Details : MpiCall {
  Details& bytes(std::uint64_t value) {
    details |= has_bytes;
    MpiCall::bytes = value;
    return *this;
  }
  // Records no peer for MPI_ANY_SOURCE and MPI_PROC_NULL.
  Details& peer(int rank) {
    if (rank < 0) return *this;
    details |= has_peer;
    MpiCall::peer = rank;
    return *this;
  }
  Details& root(int rank) {
    if (rank < 0) return *this;
    details |= has_root;
    MpiCall::peer = rank;
    return *this;
  }
  Details& tag(int value) {
    if (value < 0) return *this;
    details |= has_tag;
    MpiCall::tag = value;
    return *this;
  }
  Details& on(MPI_Comm comm) {
    int size = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &size) != MPI_SUCCESS) return *this;
    details |= has_ranks;
    ranks = static_cast<std::uint32_t>(size);
    return *this;
  }
  Details& requests(int count) {
    details |= has_requests;
    ranks = static_cast<std::uint32_t>(count);
    return *this;
  }
  Details& polled() {
    details = has_polls;
    MpiCall::bytes = 1;
    return *this;
  }
  Details& received(const MPI_Status* status) {
    int count = 0;
    PMPI_Get_count(status, MPI_BYTE, &count);
    if (count != MPI_UNDEFINED) bytes(static_cast<std::uint64_t>(count));
    return peer(status->MPI_SOURCE).tag(status->MPI_TAG);
  }
};

struct Plain {
  static Details describe(auto...) { return {}; }
};

// The status is needed. If the program passes no status, the call gets one.
struct ReadsStatus {};

// Messages

struct Message {
  static Details describe(const void*, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                          auto...) {
    return Details().bytes(bytes_of(count, type)).peer(peer).tag(tag).on(comm);
  }
};
struct Receive : ReadsStatus {
  static Details describe(void*, int, MPI_Datatype, int, int, MPI_Comm comm, MPI_Status* status) {
    return Details().received(status).on(comm);
  }
};
// Records peer, tag and bytes of the sent message. The received message is in the other rank's record.
struct Exchange {
  static Details describe(const void*, int count, MPI_Datatype type, int to, int tag, void*, int,
                          MPI_Datatype, int, int, MPI_Comm comm, MPI_Status*) {
    return Details().bytes(bytes_of(count, type)).peer(to).tag(tag).on(comm);
  }
};
struct ExchangeInPlace {
  static Details describe(void*, int count, MPI_Datatype type, int to, int tag, int, int, MPI_Comm comm,
                          MPI_Status*) {
    return Details().bytes(bytes_of(count, type)).peer(to).tag(tag).on(comm);
  }
};
struct Probe : ReadsStatus {
  static Details describe(int, int, MPI_Comm comm, MPI_Status* status) {
    return Details().received(status).on(comm);
  }
  static Details describe(int source, int tag, MPI_Comm comm, MPI_Message*, MPI_Status* status) {
    return describe(source, tag, comm, status);
  }
};
struct PollForMessage : ReadsStatus {
  static Details describe(int, int, MPI_Comm comm, const int* found, MPI_Status* status) {
    return *found != 0 ? Details().received(status).on(comm) : Details().polled();
  }
  static Details describe(int source, int tag, MPI_Comm comm, const int* found, MPI_Message*,
                          MPI_Status* status) {
    return describe(source, tag, comm, found, status);
  }
};
struct MatchedReceive : ReadsStatus {
  static Details describe(void*, int, MPI_Datatype, MPI_Message*, MPI_Status* status) {
    return Details().received(status);
  }
};
struct MatchedPost {
  static Details describe(void*, int count, MPI_Datatype type, auto...) {
    return Details().bytes(bytes_of(count, type));
  }
};

// Requests

struct OneRequest {
  static Details describe(MPI_Request*, auto...) { return Details().requests(1); }
};
struct Requests {
  static Details describe(int count, MPI_Request*, auto...) { return Details().requests(count); }
};
struct PollRequest {
  template <class Request>  // MPI_Request or a pointer to it
  static Details describe(Request, const int* done, MPI_Status*) {
    return *done != 0 ? Details().requests(1) : Details().polled();
  }
};
struct PollAll {
  static Details describe(int count, MPI_Request*, const int* done, MPI_Status*) {
    return *done != 0 ? Details().requests(count) : Details().polled();
  }
};
struct PollAny {
  static Details describe(int count, MPI_Request*, int*, const int* done, MPI_Status*) {
    return *done != 0 ? Details().requests(count) : Details().polled();
  }
};
struct PollSome {
  static Details describe(int count, MPI_Request*, const int* done, int*, MPI_Status*) {
    return *done != 0 ? Details().requests(count) : Details().polled();
  }
};

// One-sided communication: the target is the peer.

struct ToTarget {
  static Details describe(const void*, int count, MPI_Datatype type, int target, auto...) {
    return Details().bytes(bytes_of(count, type)).peer(target);
  }
};
// Uses the data that comes back, because with MPI_NO_OP the origin's arguments do not count. The
// sizes are equal otherwise.
struct FromAndToTarget {
  static Details describe(const void*, int, MPI_Datatype, void*, int count, MPI_Datatype type, int target,
                          auto...) {
    return Details().bytes(bytes_of(count, type)).peer(target);
  }
};
struct OneElement {
  static Details describe(const void*, void*, MPI_Datatype type, int target, auto...) {
    return Details().bytes(size_of(type)).peer(target);
  }
  static Details describe(const void*, const void*, void*, MPI_Datatype type, int target, auto...) {
    return Details().bytes(size_of(type)).peer(target);
  }
};
struct WindowOn {  // window on a communicator
  static Details describe(MPI_Info, MPI_Comm comm, MPI_Win*) { return Details().on(comm); }
  static Details describe(MPI_Aint, int, MPI_Info, MPI_Comm comm, void*, MPI_Win*) {
    return Details().on(comm);
  }
  static Details describe(void*, MPI_Aint, int, MPI_Info, MPI_Comm comm, MPI_Win*) {
    return Details().on(comm);
  }
};
struct PollWindow {
  static Details describe(MPI_Win, const int* done) { return *done != 0 ? Details() : Details().polled(); }
};
struct LockTarget {
  static Details describe(int, int target, auto...) { return Details().peer(target); }
};
struct OfTarget {
  static Details describe(int target, MPI_Win) { return Details().peer(target); }
};

// Files

struct At {
  static Details describe(MPI_File, MPI_Offset, const void*, int count, MPI_Datatype type, auto...) {
    return Details().bytes(bytes_of(count, type));
  }
};
struct Onward {
  static Details describe(MPI_File, const void*, int count, MPI_Datatype type, auto...) {
    return Details().bytes(bytes_of(count, type));
  }
};

}  // namespace farandole::pmpi
