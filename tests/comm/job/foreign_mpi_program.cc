// A program that starts and ends MPI itself, before or after Farandole. Its argument says how.
#include <cstdio>
#include <memory>
#include <mpi.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/comm/job/world.h"

namespace {

using namespace farandole;

bool works(Communicator& ranks) {
  int sum = ranks.rank + 1;
  ranks.allreduce("ranks", &sum, 1, DType::int32, ReduceOp::sum);
  return sum == ranks.size * (ranks.size + 1) / 2;
}

// The program's own MPI.
bool works() {
  int own = 1, sum = 0, size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum == size;
}

// What a job leaves behind when the program ends MPI before the job ends.
struct Everything {
  explicit Everything(World& job)
      : ranks(job.new_communicator(Waiting::spin)), messages(job.new_messages(tickets)) {}
  std::byte byte{};
  std::unique_ptr<Communicator> ranks;
  Tickets tickets;
  std::unique_ptr<PointToPoint> messages;
};

bool program_first() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  bool good = true;
  for (int i = 0; i < 2; ++i) {  // Nothing of the first one is called at the end.
    World job;
    job.before_finalize([&] { good = false; });
    good = good && works(*job.new_communicator(Waiting::yielding));
  }
  good = good && works();
  World job;
  Everything everything(job);
  int calls = 0;
  job.before_finalize([&] { calls += works(*everything.ranks) ? 1 : 100; });
  MPI_Finalize();
  return good && calls == 1;
}

bool job_ends_in_finalize(bool program_starts) {
  int provided = 0;
  if (program_starts) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  auto job = std::make_unique<World>();
  if (!program_starts) job->start_mpi();
  auto everything = std::make_unique<Everything>(*job);
  everything->messages->start_receive(&everything->byte, 1, 0, 0);  // never ends
  job->before_finalize([&] {
    everything.reset();
    job.reset();
  });
  MPI_Finalize();
  return job == nullptr;
}

bool program_last() {
  World job;
  job.start_mpi();
  Everything everything(job);
  const bool good = works(*everything.ranks) && works();
  MPI_Finalize();
  return good;
}

bool one_thread() {
  MPI_Init(nullptr, nullptr);
  try {
    World job;
    job.start_mpi();
    return false;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  const bool good = works();
  MPI_Finalize();
  try {
    World job;
    job.start_mpi();
    return false;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return good;
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  const bool good = how == "program_first"              ? program_first()
                    : how == "program_last"             ? program_last()
                    : how == "job_ends_in_finalize"     ? job_ends_in_finalize(true)
                    : how == "own_job_ends_in_finalize" ? job_ends_in_finalize(false)
                                                        : one_thread();
  return good ? 0 : 1;
}
