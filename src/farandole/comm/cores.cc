#include "farandole/comm/cores.h"

#include <sched.h>
#include <thread>

namespace farandole {

int allowed_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

bool has_own_cores() {
  return allowed_cores() < static_cast<int>(std::thread::hardware_concurrency());
}

bool outnumber_cores(int local_ranks) {
  return !has_own_cores() && local_ranks > allowed_cores();
}

}  // namespace farandole
