// Calls MPI's functions of all kinds on 3 ranks. Writes the expected record of each call to
// FOLDER/expected-RANK; FOLDER is its argument. A line is for example "MPI_Send bytes=40 peer=1 tag=7
// ranks=3". With the second argument "killed", rank 2 is killed while the other ranks wait for a message from
// it. With "leaves", a forked process exits, and then the program exits with 3 and without MPI_Finalize.
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mpi.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

int rank, size;
std::ofstream expected;

// Expects this record for the next call.
void expect(const std::string& line) {
  expected << line << "\n";
}

std::string text(std::initializer_list<std::pair<const char*, int>> values) {
  std::string all;
  for (const auto& [name, value] : values) all += " " + std::string(name) + "=" + std::to_string(value);
  return all;
}

void send_messages() {
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  std::array<int, 10> out{}, in{};
  MPI_Request requests[2];
  MPI_Status status;
  const auto is = [&](const char* name, int bytes, int peer, int tag) {
    expect(name + text({{"bytes", bytes}, {"peer", peer}, {"tag", tag}, {"ranks", size}}));
  };
  is("MPI_Isend", 40, next, 7);
  MPI_Isend(out.data(), 10, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[0]);
  is("MPI_Recv", 40, before, 7);  // received without source, tag or status
  MPI_Recv(in.data(), 10, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  expect("MPI_Wait requests=1");
  MPI_Wait(&requests[0], &status);

  expect("MPI_Barrier ranks=3");  // the next record must not contain what was received above
  MPI_Barrier(MPI_COMM_WORLD);

  // The largest size that it accepts.
  expect("MPI_Irecv" + text({{"bytes", 80}, {"tag", 8}, {"ranks", size}}));
  MPI_Irecv(in.data(), 10, MPI_DOUBLE, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &requests[0]);
  is("MPI_Issend", 12, before, 8);
  MPI_Issend(out.data(), 3, MPI_INT, before, 8, MPI_COMM_WORLD, &requests[1]);
  expect("MPI_Waitall requests=2");
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);

  is("MPI_Sendrecv", 4, next, 1);
  MPI_Sendrecv(out.data(), 1, MPI_INT, next, 1, in.data(), 10, MPI_INT, before, 1, MPI_COMM_WORLD, &status);
  is("MPI_Sendrecv_replace", 8, next, 2);
  MPI_Sendrecv_replace(out.data(), 2, MPI_INT, next, 2, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  expect("MPI_Send" + text({{"bytes", 4}, {"tag", 3}, {"ranks", size}}));
  MPI_Send(out.data(), 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD);
  expect("MPI_Recv" + text({{"bytes", 0}, {"ranks", size}}));
  MPI_Recv(in.data(), 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);

  is("MPI_Send_init", 4, next, 4);
  MPI_Send_init(out.data(), 1, MPI_INT, next, 4, MPI_COMM_WORLD, &requests[0]);
  is("MPI_Recv_init", 4, before, 4);
  MPI_Recv_init(in.data(), 1, MPI_INT, before, 4, MPI_COMM_WORLD, &requests[1]);
  expect("MPI_Startall requests=2");
  MPI_Startall(2, requests);
  for (int i = 0; i < 2; ++i) {
    int which = 0;
    expect("MPI_Waitany requests=2");
    MPI_Waitany(2, requests, &which, MPI_STATUS_IGNORE);
  }
  for (auto& request : requests) {
    expect("MPI_Request_free requests=1");
    MPI_Request_free(&request);
  }

  MPI_Message message;
  is("MPI_Isend", 16, next, 5);
  MPI_Isend(out.data(), 4, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[0]);
  is("MPI_Probe", 16, before, 5);
  MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  is("MPI_Mprobe", 16, before, 5);
  MPI_Mprobe(before, 5, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
  expect("MPI_Mrecv" + text({{"bytes", 16}, {"peer", before}, {"tag", 5}}));
  MPI_Mrecv(in.data(), 10, MPI_INT, &message, MPI_STATUS_IGNORE);
  int done = 0;
  expect("MPI_Waitsome requests=1");
  std::array<int, 1> indices{};
  MPI_Waitsome(1, requests, &done, indices.data(), MPI_STATUSES_IGNORE);
}

void call_collectives() {
  const auto everything = std::vector<int>(100);
  std::vector<int> out(100), in(100);
  const std::vector<int> counts{1, 2, 3}, places{0, 10, 20};
  const auto on = [&](const char* name, int bytes) {
    expect(name + text({{"bytes", bytes}, {"ranks", size}}));
  };
  const auto from = [&](const char* name, int bytes, int root) {
    expect(name + text({{"bytes", bytes}, {"root", root}, {"ranks", size}}));
  };
  const auto wait = [&](MPI_Request& request) {
    expect("MPI_Wait requests=1");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  MPI_Request request;
  expect("MPI_Barrier ranks=3");
  MPI_Barrier(MPI_COMM_WORLD);
  expect("MPI_Ibarrier ranks=3");
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait(request);
  from("MPI_Bcast", 400, 2);
  MPI_Bcast(out.data(), 100, MPI_INT, 2, MPI_COMM_WORLD);
  from("MPI_Ibcast", 400, 1);
  MPI_Ibcast(out.data(), 50, MPI_2INT, 1, MPI_COMM_WORLD, &request);
  wait(request);
  from("MPI_Gather", rank == 1 ? 24 : 8, 1);
  MPI_Gather(out.data(), 2, MPI_INT, in.data(), 2, MPI_INT, 1, MPI_COMM_WORLD);
  from("MPI_Gather", rank == 0 ? 24 : 8, 0);
  MPI_Gather(rank == 0 ? MPI_IN_PLACE : out.data(), rank == 0 ? -5 : 2,
             rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, rank == 0 ? in.data() : nullptr, 2,
             rank == 0 ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
  from("MPI_Gatherv", rank == 0 ? 24 : 4 * (rank + 1), 0);
  MPI_Gatherv(out.data(), rank + 1, MPI_INT, in.data(), rank == 0 ? counts.data() : nullptr,
              rank == 0 ? places.data() : nullptr, MPI_INT, 0, MPI_COMM_WORLD);
  from("MPI_Scatter", rank == 2 ? 48 : 16, 2);
  MPI_Scatter(out.data(), 4, MPI_INT, in.data(), 4, MPI_INT, 2, MPI_COMM_WORLD);
  from("MPI_Scatterv", rank == 0 ? 24 : 4 * (rank + 1), 0);
  MPI_Scatterv(out.data(), rank == 0 ? counts.data() : nullptr, places.data(), MPI_INT,
               rank == 0 ? MPI_IN_PLACE : in.data(), rank + 1, MPI_INT, 0, MPI_COMM_WORLD);
  on("MPI_Allgather", 60);
  MPI_Allgather(out.data(), 5, MPI_INT, in.data(), 5, MPI_INT, MPI_COMM_WORLD);
  on("MPI_Allgather", 60);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in.data(), 5, MPI_INT, MPI_COMM_WORLD);
  on("MPI_Allgatherv", 24);
  MPI_Allgatherv(out.data(), rank + 1, MPI_INT, in.data(), counts.data(), places.data(), MPI_INT,
                 MPI_COMM_WORLD);
  on("MPI_Alltoall", 24);
  MPI_Alltoall(out.data(), 2, MPI_INT, in.data(), 2, MPI_INT, MPI_COMM_WORLD);
  on("MPI_Alltoall", 24);
  MPI_Alltoall(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, in.data(), 2, MPI_INT, MPI_COMM_WORLD);
  const std::vector<int> mine(3, rank + 1);
  on("MPI_Alltoallv", 12 * (rank + 1));  // sends rank + 1 values to each rank
  MPI_Alltoallv(out.data(), mine.data(), places.data(), MPI_INT, in.data(), counts.data(), places.data(),
                MPI_INT, MPI_COMM_WORLD);
  const std::vector<MPI_Datatype> types{MPI_INT, MPI_INT, MPI_INT};
  on("MPI_Alltoallw", 12 * (rank + 1));
  MPI_Alltoallw(out.data(), mine.data(), places.data(), types.data(), in.data(), counts.data(), places.data(),
                types.data(), MPI_COMM_WORLD);
  on("MPI_Allreduce", 40);
  MPI_Allreduce(MPI_IN_PLACE, in.data(), 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  on("MPI_Iallreduce", 40);
  MPI_Iallreduce(out.data(), in.data(), 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  wait(request);
  from("MPI_Reduce", 40, 1);
  MPI_Reduce(out.data(), in.data(), 10, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
  on("MPI_Reduce_scatter", 24);
  MPI_Reduce_scatter(out.data(), in.data(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  on("MPI_Reduce_scatter_block", 24);
  MPI_Reduce_scatter_block(out.data(), in.data(), 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  on("MPI_Scan", 4);
  MPI_Scan(out.data(), in.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  on("MPI_Exscan", 4);
  MPI_Exscan(out.data(), in.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

void use_communicators() {
  MPI_Comm copy, pair, ring;
  expect("MPI_Comm_dup ranks=3");
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  expect("MPI_Comm_split ranks=3");
  MPI_Comm_split(copy, rank == 0 ? 0 : 1, -rank, &pair);
  int value = 0;
  expect("MPI_Allreduce" + text({{"bytes", 4}, {"ranks", rank == 0 ? 1 : 2}}));
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, pair);
  if (rank > 0) {  // each of the two is rank 0 or 1 of the pair
    expect("MPI_Sendrecv_replace" + text({{"bytes", 4}, {"peer", rank - 1}, {"tag", 0}, {"ranks", 2}}));
    MPI_Sendrecv_replace(&value, 1, MPI_INT, rank - 1, 0, rank - 1, 0, pair, MPI_STATUS_IGNORE);
  }
  MPI_Comm between = MPI_COMM_NULL;
  expect("MPI_Intercomm_create ranks=" + std::to_string(rank == 0 ? 1 : 2));
  MPI_Intercomm_create(pair, 0, copy, rank == 0 ? 2 : 0, 3, &between);
  std::array<int, 8> few{};
  expect("MPI_Allgather" + text({{"bytes", rank == 0 ? 8 : 4}, {"ranks", rank == 0 ? 1 : 2}}));
  MPI_Allgather(&value, 1, MPI_INT, few.data(), 1, MPI_INT, between);
  const int root = rank == 0 ? MPI_ROOT : 0;
  expect("MPI_Gather" +
         (rank == 0 ? text({{"bytes", 8}, {"ranks", 1}}) : text({{"bytes", 4}, {"root", 0}, {"ranks", 2}})));
  MPI_Gather(&value, 1, MPI_INT, few.data(), 1, MPI_INT, root, between);
  for (MPI_Comm* comm : {&between, &pair, &copy}) {
    expect("MPI_Comm_free");
    MPI_Comm_free(comm);
  }

  const int dims = 3, periodic = 1;
  expect("MPI_Cart_create ranks=3");
  MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periodic, 0, &ring);
  expect("MPI_Neighbor_allgather ranks=3");
  MPI_Neighbor_allgather(&value, 1, MPI_INT, few.data(), 1, MPI_INT, ring);
  expect("MPI_Neighbor_alltoall ranks=3");
  std::array<int, 2> both{};
  MPI_Neighbor_alltoall(both.data(), 1, MPI_INT, few.data(), 1, MPI_INT, ring);
  expect("MPI_Comm_free");
  MPI_Comm_free(&ring);
}

void use_windows() {
  std::vector<double> memory(16);
  MPI_Win window;
  const int next = (rank + 1) % size;
  expect("MPI_Win_create");
  MPI_Win_create(memory.data(), 16 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  expect("MPI_Win_fence");
  MPI_Win_fence(0, window);
  double value = 1, result = 0;
  expect("MPI_Put bytes=8");
  MPI_Put(&value, 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, window);
  expect("MPI_Win_fence");
  MPI_Win_fence(0, window);
  expect("MPI_Win_lock");
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
  expect("MPI_Get bytes=8");
  MPI_Get(&result, 1, MPI_DOUBLE, next, 1, 1, MPI_DOUBLE, window);
  expect("MPI_Accumulate bytes=8");
  MPI_Accumulate(&value, 1, MPI_DOUBLE, next, 2, 1, MPI_DOUBLE, MPI_SUM, window);
  expect("MPI_Win_flush");
  MPI_Win_flush(next, window);
  expect("MPI_Fetch_and_op bytes=8");
  MPI_Fetch_and_op(&value, &result, MPI_DOUBLE, next, 3, MPI_SUM, window);
  expect("MPI_Get_accumulate bytes=0");  // MPI_NO_OP sends nothing
  MPI_Get_accumulate(nullptr, 0, MPI_DOUBLE, &result, 1, MPI_DOUBLE, next, 4, 1, MPI_DOUBLE, MPI_NO_OP,
                     window);
  expect("MPI_Win_unlock");
  MPI_Win_unlock(next, window);
  expect("MPI_Win_free");
  MPI_Win_free(&window);
}

void use_files(const std::string& folder) {
  MPI_File file;
  std::array<int, 4> data{};
  expect("MPI_File_open");
  MPI_File_open(MPI_COMM_WORLD, (folder + "/data").c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                &file);
  expect("MPI_File_write_at bytes=16");
  MPI_File_write_at(file, rank * 16, data.data(), 4, MPI_INT, MPI_STATUS_IGNORE);
  expect("MPI_File_write_at_all bytes=16");
  MPI_File_write_at_all(file, rank * 16, data.data(), 4, MPI_INT, MPI_STATUS_IGNORE);
  expect("MPI_File_sync");
  MPI_File_sync(file);
  expect("MPI_File_read bytes=8");
  MPI_File_read(file, data.data(), 2, MPI_INT, MPI_STATUS_IGNORE);
  expect("MPI_File_close");
  MPI_File_close(&file);
}

// Repeated polls are one record as long as they spin.
void poll() {
  int done = 0;
  MPI_Request request;
  expect("MPI_Barrier ranks=3");
  MPI_Barrier(MPI_COMM_WORLD);
  expect("MPI_Irecv" + text({{"bytes", 0}, {"peer", rank}, {"tag", 9}, {"ranks", size}}));
  MPI_Irecv(nullptr, 0, MPI_INT, rank, 9, MPI_COMM_WORLD, &request);
  expect("MPI_Test polls=5000");
  for (int i = 0; i < 5000; ++i) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  expect("MPI_Iprobe polls=1");
  MPI_Iprobe(rank, 10, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
  expect("MPI_Send" + text({{"bytes", 0}, {"peer", rank}, {"tag", 9}, {"ranks", size}}));
  MPI_Send(nullptr, 0, MPI_INT, rank, 9, MPI_COMM_WORLD);
  expect("MPI_Test requests=1");
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

// A forked process has none of the program's threads, and its exit runs the exit handlers
// that were registered before.
[[noreturn]] void leave() {
  int status = -1;
  const pid_t worker = fork();
  if (worker == 0) std::exit(0);
  waitpid(worker, &status, 0);
  std::exit(status == 0 ? 3 : 4);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::string folder = argc > 1 ? argv[1] : ".";
  expected.open(folder + "/expected-" + std::to_string(rank));
  expect("MPI_Init");
  if (argc > 2 && std::string(argv[2]) == "leaves") leave();
  if (argc > 2) {
    MPI_Barrier(MPI_COMM_WORLD);
    int word = 0;
    if (rank == 2) std::raise(SIGKILL);
    MPI_Recv(&word, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  send_messages();
  call_collectives();
  use_communicators();
  use_windows();
  use_files(folder);
  poll();
  expect("MPI_Finalize");
  expected.close();
  MPI_Finalize();
}
