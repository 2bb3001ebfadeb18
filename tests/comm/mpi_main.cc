#include "mpi_main.h"

#include "comm/mpi_world.h"

namespace farandole {
World* world = nullptr;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  farandole::World job;
  farandole::world = &job;
  // On one node, MPI is started only by those who want it.
  job.use_transport(farandole::Transport::mpi);
  job.new_communicator(farandole::Waiting::spin);
  job.use_transport(farandole::Transport::automatic);
  farandole::report_as_rank(job.layout().rank);
  return RUN_ALL_TESTS();
}
