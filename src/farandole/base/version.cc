#include "farandole/base/version.h"

namespace farandole {

const char* version() {
  return FARANDOLE_VERSION;
}

}  // namespace farandole
