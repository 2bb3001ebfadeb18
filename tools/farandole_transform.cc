// farandole transform. The code is in estimator/, so that only that layer includes LibTorch's headers.
#include "farandole/estimator/commands.h"

int main(int argc, char** argv) {
  return farandole::transform_command(argc, argv);
}
