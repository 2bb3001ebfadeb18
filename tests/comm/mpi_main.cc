#include "mpi_main.h"

#include "comm/mpi_world.h"

namespace farandole {
MpiJob* world = nullptr;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  farandole::MpiJob job;
  farandole::world = &job;
  farandole::report_as_rank(job.layout().rank);
  return RUN_ALL_TESTS();
}
