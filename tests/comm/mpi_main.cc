#include "mpi_main.h"

#include "comm/mpi_world.h"

namespace farandole {
World* world = nullptr;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  farandole::World job;
  farandole::world = &job;
  job.start_mpi();
  farandole::report_as_rank(job.layout().rank);
  return RUN_ALL_TESTS();
}
