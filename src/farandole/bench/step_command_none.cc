#include "farandole/base/error.h"
#include "farandole/bench/step_command.h"

namespace farandole {

int step_command(int, const char* const*) {
  throw UserError("bench step trains, and this build has no LibTorch; configure it with FARANDOLE_TORCH=ON");
}

}  // namespace farandole
