// farandole config: shows where the value of each option of farandole train comes from. The code is in
// trainer/, which knows the options.
#include "farandole/trainer/train_command.h"

int main(int argc, char** argv) {
  return farandole::config_command(argc, argv);
}
