#include "mpi_main.h"

#include "train/mpi_session.h"

namespace farandole {
Session* session = nullptr;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  farandole::Session session(argc, argv);
  farandole::session = &session;
  farandole::report_as_rank(session.rank());
  return RUN_ALL_TESTS();
}
