// farandole train: one rank of a training run. The code is in trainer/, so that only that
// layer includes LibTorch's headers.
#include "farandole/trainer/train_command.h"

int main(int argc, char** argv) {
  return farandole::train_command(argc, argv);
}
