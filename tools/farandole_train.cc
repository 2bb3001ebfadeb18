// farandole train: one rank of a training run. All of it lies in train/, for only there is LibTorch's header
// parsed.
#include "farandole/trainer/train_command.h"

int main(int argc, char** argv) {
  return farandole::train_command(argc, argv);
}
