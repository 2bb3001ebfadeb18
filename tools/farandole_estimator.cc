// farandole fit, transform, evaluate, runs and model: COMMAND is the function of one of them. The code is in
// estimator/, so that only that layer includes LibTorch's headers.
#include "farandole/estimator/commands.h"

int main(int argc, char** argv) {
  return farandole::COMMAND(argc, argv);
}
