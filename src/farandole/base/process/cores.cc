#include "farandole/base/process/cores.h"

#include <memory>
#include <sched.h>
#include <thread>

namespace farandole {

int allowed_cores() {
  // Machines with more than CPU_SETSIZE (1024) CPUs need a larger set, without which the
  // kernel returns EINVAL.
  for (std::size_t cpus = CPU_SETSIZE; cpus <= (std::size_t{1} << 20); cpus *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus),
                                                               [](cpu_set_t* it) { CPU_FREE(it); });
    if (::sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set.get()) == 0)
      return CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set.get());
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::vector<std::uint64_t> core_mask() {
  std::vector<std::uint64_t> mask(CPU_SETSIZE / 64);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return mask;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) mask[core / 64] |= std::uint64_t{1} << core % 64;
  return mask;
}

bool has_own_cores() {
  return allowed_cores() < static_cast<int>(std::thread::hardware_concurrency());
}

bool outnumber_cores(int local_ranks) {
  return !has_own_cores() && local_ranks > allowed_cores();
}

}  // namespace farandole
