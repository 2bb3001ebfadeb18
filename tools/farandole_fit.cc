// farandole fit. The code is in estimator/, so that only that layer includes LibTorch's headers.
#include "farandole/estimator/commands.h"

int main(int argc, char** argv) {
  return farandole::fit_command(argc, argv);
}
