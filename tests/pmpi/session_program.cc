// Trains, as far as MPI can see, in a session of 2 ranks whose timeline is recorded in RUN, its argument. The
// program itself calls MPI_Allreduce in each backward phase and MPI_Send or MPI_Recv after each step.
#include <filesystem>
#include <mpi.h>
#include <vector>

#include "farandole/base/run/run_files.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/comm/wrap/traced_communicator.h"

namespace {

using namespace farandole;

void step(int number, Timeline& timeline, Communicator& gradients, int rank) {
  timeline.set_step(number);
  {
    const Span whole(timeline, Category::step, "step");
    const Span span(timeline, Category::backward, "backward");
    std::vector<float> values(1000);
    gradients.allreduce("bucket 0", values.data(), values.size(), DType::float32, ReduceOp::sum);
    double own = 1;
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  int word = number;
  if (rank == 0)
    MPI_Send(&word, 1, MPI_INT, 1, number, MPI_COMM_WORLD);
  else
    MPI_Recv(&word, 1, MPI_INT, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path run = argv[1];
  World job;
  job.start_mpi();
  const auto& layout = job.layout();
  Timeline timeline({recorder_file(run, layout.rank), {}, 1 << 20, layout.rank, layout.size, layout.node});
  timeline.name_thread("training");
  Recording recording(job.new_channel(), timeline, {.run_dir = run});
  TracedCommunicator gradients(job.new_communicator(Waiting::yielding), timeline, 0);
  for (int number = 0; number < 5; ++number) step(number, timeline, gradients, layout.rank);
  timeline.set_step(-1);
  recording.publish();
}
