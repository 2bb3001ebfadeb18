// The shapes (shapes.h) of collectives: on communicators, with neighbours, on windows and on files.
// Arguments that MPI ignores are not read, for example the partner of MPI_IN_PLACE or arguments that
// only the root uses.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/pmpi/shapes.h"

namespace farandole::pmpi {

// The number of ranks for which a collective's arrays have entries. With an intercommunicator, these are the
// ranks of the other group.
inline std::size_t partners(MPI_Comm comm) {
  int size = 0, between = 0;
  PMPI_Comm_test_inter(comm, &between);
  between != 0 ? PMPI_Comm_remote_size(comm, &size) : PMPI_Comm_size(comm, &size);
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

inline std::uint64_t sum(const int* counts, std::size_t size) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < size; ++i) total += static_cast<std::uint64_t>(counts[i]);
  return total;
}

inline std::uint64_t bytes_of(const int* counts, const MPI_Datatype* types, std::size_t size) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < size; ++i) total += bytes_of(counts[i], types[i]);
  return total;
}

// The number of neighbours to which this rank sends.
inline std::size_t neighbors(MPI_Comm comm) {
  int kind = MPI_UNDEFINED, number = 0, rank = 0, in = 0, weighted = 0;
  PMPI_Topo_test(comm, &kind);
  if (kind == MPI_CART) {
    PMPI_Cartdim_get(comm, &number);
    number *= 2;
  } else if (kind == MPI_GRAPH) {
    PMPI_Comm_rank(comm, &rank);
    PMPI_Graph_neighbors_count(comm, rank, &number);
  } else if (kind == MPI_DIST_GRAPH) {
    PMPI_Dist_graph_neighbors_count(comm, &in, &number, &weighted);
  }
  return static_cast<std::size_t>(number);
}

// all() is the data of all ranks, which is counted on the root; own() is this rank's, which
// is counted elsewhere.
Details rooted(int root, MPI_Comm comm, auto all, auto own) {
  const std::uint64_t bytes = is_root(root, comm) ? all() : root >= 0 ? own() : 0;
  return Details().bytes(bytes).root(root).on(comm);
}

struct OnCommunicator {
  static Details describe(MPI_Comm comm, auto...) { return Details().on(comm); }
};
struct Rooted {
  static Details describe(void*, int count, MPI_Datatype type, int root, MPI_Comm comm, auto...) {
    return Details().bytes(bytes_of(count, type)).root(root).on(comm);
  }
};
struct Gathered {
  static Details describe(const void*, int own, MPI_Datatype own_type, void*, int each, MPI_Datatype type,
                          int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return partners(comm) * bytes_of(each, type); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct GatheredV {
  static Details describe(const void*, int own, MPI_Datatype own_type, void*, const int* counts, const int*,
                          MPI_Datatype type, int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return sum(counts, partners(comm)) * size_of(type); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct Scattered {
  static Details describe(const void*, int each, MPI_Datatype type, void*, int own, MPI_Datatype own_type,
                          int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return partners(comm) * bytes_of(each, type); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct ScatteredV {
  static Details describe(const void*, const int* counts, const int*, MPI_Datatype type, void*, int own,
                          MPI_Datatype own_type, int root, MPI_Comm comm, auto...) {
    return rooted(
        root, comm, [&] { return sum(counts, partners(comm)) * size_of(type); },
        [&] { return bytes_of(own, own_type); });
  }
};
struct AllGathered {
  static Details describe(const void*, int, MPI_Datatype, void*, int each, MPI_Datatype type, MPI_Comm comm,
                          auto...) {
    return Details().bytes(partners(comm) * bytes_of(each, type)).on(comm);
  }
};
struct AllGatheredV {
  static Details describe(const void*, int, MPI_Datatype, void*, const int* counts, const int*,
                          MPI_Datatype type, MPI_Comm comm, auto...) {
    return Details().bytes(sum(counts, partners(comm)) * size_of(type)).on(comm);
  }
};
struct AllToAll {
  static Details describe(const void* send, int each, MPI_Datatype type, void*, int receive_each,
                          MPI_Datatype receive_type, MPI_Comm comm, auto...) {
    const auto one = send == MPI_IN_PLACE ? bytes_of(receive_each, receive_type) : bytes_of(each, type);
    return Details().bytes(partners(comm) * one).on(comm);
  }
};
struct AllToAllV {
  static Details describe(const void* send, const int* counts, const int*, MPI_Datatype type, void*,
                          const int* receive_counts, const int*, MPI_Datatype receive_type, MPI_Comm comm,
                          auto...) {
    const bool in_place = send == MPI_IN_PLACE;
    return Details()
        .bytes(sum(in_place ? receive_counts : counts, partners(comm)) *
               size_of(in_place ? receive_type : type))
        .on(comm);
  }
};
struct AllToAllW {
  static Details describe(const void* send, const int* counts, const int*, const MPI_Datatype* types, void*,
                          const int* receive_counts, const int*, const MPI_Datatype* receive_types,
                          MPI_Comm comm, auto...) {
    const bool in_place = send == MPI_IN_PLACE;
    return Details()
        .bytes(bytes_of(in_place ? receive_counts : counts, in_place ? receive_types : types, partners(comm)))
        .on(comm);
  }
};
struct Reduced {
  static Details describe(const void*, void*, int count, MPI_Datatype type, MPI_Op, MPI_Comm comm, auto...) {
    return Details().bytes(bytes_of(count, type)).on(comm);
  }
};
struct ReducedToRoot {
  static Details describe(const void*, void*, int count, MPI_Datatype type, MPI_Op, int root, MPI_Comm comm,
                          auto...) {
    return Details().bytes(bytes_of(count, type)).root(root).on(comm);
  }
};
struct ReducedToEach {
  static Details describe(const void*, void*, const int* counts, MPI_Datatype type, MPI_Op, MPI_Comm comm,
                          auto...) {
    int size = 0;  // size of the own group, also with an intercommunicator
    PMPI_Comm_size(comm, &size);
    return Details().bytes(sum(counts, static_cast<std::size_t>(size)) * size_of(type)).on(comm);
  }
};
struct ReducedToEachEqually {
  static Details describe(const void*, void*, int each, MPI_Datatype type, MPI_Op, MPI_Comm comm, auto...) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    return Details().bytes(static_cast<std::uint64_t>(size) * bytes_of(each, type)).on(comm);
  }
};

// The same bytes go to each neighbour and are counted once, as one rank's bytes in an all-gather.
struct ToNeighbors {
  static Details describe(const void*, int count, MPI_Datatype type, void*, int, MPI_Datatype, MPI_Comm comm,
                          auto...) {
    return Details().bytes(bytes_of(count, type)).on(comm);
  }
};
struct ToNeighborsV {
  static Details describe(const void*, int count, MPI_Datatype type, void*, const int*, const int*,
                          MPI_Datatype, MPI_Comm comm, auto...) {
    return Details().bytes(bytes_of(count, type)).on(comm);
  }
};
struct ToEachNeighbor {
  static Details describe(const void*, int each, MPI_Datatype type, void*, int, MPI_Datatype, MPI_Comm comm,
                          auto...) {
    return Details().bytes(neighbors(comm) * bytes_of(each, type)).on(comm);
  }
};
struct ToEachNeighborV {
  static Details describe(const void*, const int* counts, const int*, MPI_Datatype type, void*, const int*,
                          const int*, MPI_Datatype, MPI_Comm comm, auto...) {
    return Details().bytes(sum(counts, neighbors(comm)) * size_of(type)).on(comm);
  }
};
struct ToEachNeighborW {
  static Details describe(const void*, const int* counts, const MPI_Aint*, const MPI_Datatype* types, void*,
                          const int*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm comm, auto...) {
    return Details().bytes(bytes_of(counts, types, neighbors(comm))).on(comm);
  }
};

}  // namespace farandole::pmpi
