// The shapes of the arguments of MPI's functions, and the details that are recorded for each shape.
// describe() runs on the calling thread after the function has succeeded. It ignores trailing arguments that
// it does not need, for example a request, and arguments that MPI ignores, for example the partner of
// MPI_IN_PLACE or what only the root uses.
// Thread safety: any thread may call this at any time.
//
// Bytes are counted as in Farandole's own collectives:
// - message: its size, or the largest size that a receive accepts if the received size is unknown;
// - reduction and broadcast: the buffer;
// - gather and scatter: all data on the root, this rank's data elsewhere;
// - all-to-all: the data that this rank sends to all ranks;
// - file and one-sided communication: the data of this rank.
#pragma once

#include <cstddef>
#include <mpi.h>
#include <optional>
#include <type_traits>

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

// The bytes for `ranks` ranks: each has the same count, or the arrays have a count, or a count and a
// type, for each.
inline std::uint64_t bytes_of_all(int count, MPI_Datatype type, std::size_t ranks) {
  return ranks * bytes_of(count, type);
}
inline std::uint64_t bytes_of_all(const int* counts, MPI_Datatype type, std::size_t ranks) {
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < ranks; ++i) elements += static_cast<std::uint64_t>(counts[i]);
  return elements * size_of(type);
}
inline std::uint64_t bytes_of_all(const int* counts, const MPI_Datatype* types, std::size_t ranks) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < ranks; ++i) bytes += bytes_of(counts[i], types[i]);
  return bytes;
}

// The number of ranks in this rank's group.
inline std::size_t members(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return static_cast<std::size_t>(size);
}
// The number of ranks for which a collective's arrays have entries. With an intercommunicator, these are the
// ranks of the other group.
inline std::size_t partners(MPI_Comm comm) {
  int size = 0, between = 0;
  PMPI_Comm_test_inter(comm, &between);
  if (between == 0) return members(comm);
  PMPI_Comm_remote_size(comm, &size);
  return static_cast<std::size_t>(size);
}
// True on the root, where all data is gathered or scattered. With an intercommunicator, MPI_ROOT names the
// root in its own group.
inline bool is_root(int root, MPI_Comm comm) {
  int rank = 0, between = 0;
  PMPI_Comm_test_inter(comm, &between);
  if (between != 0) return root == MPI_ROOT;
  PMPI_Comm_rank(comm, &rank);
  return rank == root;
}

// The first argument of this type, after `skipped` others of it. There must be one.
template <class Wanted, int skipped = 0, class First, class... Others>
Wanted argument(First first, Others... others) {
  if constexpr (!std::is_same_v<First, Wanted>)
    return argument<Wanted, skipped>(others...);
  else if constexpr (skipped > 0)
    return argument<Wanted, skipped - 1>(others...);
  else
    return first;
}

// Builds the details of a call step by step.
struct Details : MpiCall {
  Details& of_bytes(std::uint64_t value) {
    bytes = value;
    return *this;
  }
  // Records no peer for MPI_ANY_SOURCE and MPI_PROC_NULL.
  Details& with(int rank) {
    if (rank >= 0) peer = rank;
    return *this;
  }
  Details& rooted_at(int rank) {
    if (rank >= 0) root = rank;
    return *this;
  }
  Details& tagged(int value) {
    if (value >= 0) tag = value;
    return *this;
  }
  Details& on(MPI_Comm comm) {
    int size = 0;
    if (comm != MPI_COMM_NULL && PMPI_Comm_size(comm, &size) == MPI_SUCCESS)
      ranks = static_cast<std::uint32_t>(size);
    return *this;
  }
  Details& waiting_for(int count) {
    requests = static_cast<std::uint32_t>(count);
    return *this;
  }
  Details& polled() {
    polls = 1;
    return *this;
  }
  Details& received(const MPI_Status* status) {
    int count = 0;
    PMPI_Get_count(status, MPI_BYTE, &count);
    if (count != MPI_UNDEFINED) bytes = static_cast<std::uint64_t>(count);
    return with(status->MPI_SOURCE).tagged(status->MPI_TAG);
  }
};

struct Plain {
  static Details describe(auto...) { return {}; }
};

// Files and one-sided communication: only the bytes of the first count and type, if there are any.
struct Transfer {
  static Details describe(auto... arguments) {
    Details details;
    int last_number = 1;  // calls without a count transfer one element
    const auto look_at = [&](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), int>) last_number = argument;
      if constexpr (std::is_same_v<decltype(argument), MPI_Datatype>)
        if (!details.bytes) details.of_bytes(bytes_of(last_number, argument));
    };
    (look_at(arguments), ...);
    return details;
  }
};

// Messages

// The status is needed. If the program passes no status, the call gets one.
struct ReadsStatus {};

// Of an exchange, this describes the sent message. The received message is in the other rank's record.
struct Message {
  static Details describe(const void*, int count, MPI_Datatype type, int peer, int tag, auto... others) {
    return Details().of_bytes(bytes_of(count, type)).with(peer).tagged(tag).on(argument<MPI_Comm>(others...));
  }
};
struct Receive : ReadsStatus {
  static Details describe(auto... arguments) {
    return Details().received(argument<MPI_Status*>(arguments...)).on(argument<MPI_Comm>(arguments...));
  }
};
struct MatchedReceive : ReadsStatus {
  static Details describe(auto... arguments) {
    return Details().received(argument<MPI_Status*>(arguments...));
  }
};
struct PollForMessage : ReadsStatus {
  static Details describe(auto... arguments) {
    return *argument<int*>(arguments...) != 0 ? Receive::describe(arguments...) : Details().polled();
  }
};

// Requests

struct Requests {
  static Details describe(int count, MPI_Request*, auto...) { return Details().waiting_for(count); }
  static Details describe(MPI_Request*, auto...) { return Details().waiting_for(1); }
  static Details describe(MPI_Request, auto...) { return Details().waiting_for(1); }
};
// The result of the poll is the first of the arguments that are integers to be written.
struct Poll {
  static Details describe(auto... arguments) {
    return *argument<int*>(arguments...) != 0 ? Requests::describe(arguments...) : Details().polled();
  }
};
struct PollAny {  // or the second
  static Details describe(auto... arguments) {
    return *argument<int*, 1>(arguments...) != 0 ? Requests::describe(arguments...) : Details().polled();
  }
};
struct PollWindow {
  static Details describe(MPI_Win, const int* done) { return *done != 0 ? Details() : Details().polled(); }
};

// Collectives

struct OnCommunicator {
  static Details describe(auto... arguments) { return Details().on(argument<MPI_Comm>(arguments...)); }
};
struct Broadcast {
  static Details describe(void*, int count, MPI_Datatype type, int root, MPI_Comm comm, auto...) {
    return Details().of_bytes(bytes_of(count, type)).rooted_at(root).on(comm);
  }
};
struct Reduced {
  static Details describe(const void*, void*, int count, MPI_Datatype type, MPI_Op, MPI_Comm comm, auto...) {
    return Details().of_bytes(bytes_of(count, type)).on(comm);
  }
};
struct ReducedToRoot {
  static Details describe(const void*, void*, int count, MPI_Datatype type, MPI_Op, int root, MPI_Comm comm,
                          auto...) {
    return Details().of_bytes(bytes_of(count, type)).rooted_at(root).on(comm);
  }
};
struct ReducedToEach {
  static Details describe(const void*, void*, auto counts, MPI_Datatype type, MPI_Op, MPI_Comm comm,
                          auto...) {
    return Details().of_bytes(bytes_of_all(counts, type, members(comm))).on(comm);
  }
};

// all() is the data of all ranks, which is counted on the root; own() is this rank's, which
// is counted elsewhere.
Details rooted(int root, MPI_Comm comm, auto all, auto own) {
  const std::uint64_t bytes = is_root(root, comm) ? all() : root >= 0 ? own() : 0;
  return Details().of_bytes(bytes).rooted_at(root).on(comm);
}
struct Gathered {
  static Details describe(const void*, int own, MPI_Datatype own_type, void*, int each, MPI_Datatype type,
                          int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return bytes_of_all(each, type, partners(comm)); },
        [&] { return bytes_of(own, own_type); });
  }
  static Details describe(const void*, int own, MPI_Datatype own_type, void*, const int* counts, const int*,
                          MPI_Datatype type, int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return bytes_of_all(counts, type, partners(comm)); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct Scattered {
  static Details describe(const void*, int each, MPI_Datatype type, void*, int own, MPI_Datatype own_type,
                          int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return bytes_of_all(each, type, partners(comm)); },
        [&] { return bytes_of(own, own_type); });
  }
  static Details describe(const void*, const int* counts, const int*, MPI_Datatype type, void*, int own,
                          MPI_Datatype own_type, int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return bytes_of_all(counts, type, partners(comm)); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct AllGathered {
  static Details describe(const void*, int, MPI_Datatype, void*, int each, MPI_Datatype type, MPI_Comm comm,
                          auto...) {
    return Details().of_bytes(bytes_of_all(each, type, partners(comm))).on(comm);
  }
  static Details describe(const void*, int, MPI_Datatype, void*, const int* counts, const int*,
                          MPI_Datatype type, MPI_Comm comm, auto...) {
    return Details().of_bytes(bytes_of_all(counts, type, partners(comm))).on(comm);
  }
};
struct AllToAll {
  static Details describe(const void* send, int each, MPI_Datatype type, void*, int receive_each,
                          MPI_Datatype receive_type, MPI_Comm comm, auto...) {
    const auto ranks = partners(comm);
    const bool in_place = send == MPI_IN_PLACE;
    return Details()
        .of_bytes(in_place ? bytes_of_all(receive_each, receive_type, ranks)
                           : bytes_of_all(each, type, ranks))
        .on(comm);
  }
  // One type for all ranks, or an array with one for each.
  static Details describe(const void* send, const int* counts, const int*, auto types, void*,
                          const int* receive_counts, const int*, auto receive_types, MPI_Comm comm, auto...) {
    const auto ranks = partners(comm);
    const bool in_place = send == MPI_IN_PLACE;
    return Details()
        .of_bytes(in_place ? bytes_of_all(receive_counts, receive_types, ranks)
                           : bytes_of_all(counts, types, ranks))
        .on(comm);
  }
};

}  // namespace farandole::pmpi
