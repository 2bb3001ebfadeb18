#include "farandole/launch/slurm/job_memory.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

#include "farandole/base/text/parse_number.h"
#include "farandole/launch/supervisor/memory_watch.h"

namespace farandole {
namespace {

std::int64_t positive_number(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  return text == nullptr ? 0 : std::max<std::int64_t>(parse_number<std::int64_t>(text).value_or(0), 0);
}

}  // namespace

// sbatch(1), output environment variables. Slurm's numbers are MiB.
std::optional<std::int64_t> slurm_memory_bytes(const Environment& environment) {
  if (!in_slurm_job(environment)) return std::nullopt;
  auto mib = positive_number(environment, "SLURM_MEM_PER_NODE");
  if (mib == 0)
    mib = positive_number(environment, "SLURM_MEM_PER_CPU") *
          positive_number(environment, "SLURM_CPUS_ON_NODE");
  if (mib == 0) return std::nullopt;
  return mib << 20;
}

std::optional<std::int64_t> job_memory_bytes() {
  std::optional<std::int64_t> least;
  if (const auto pages = ::sysconf(_SC_PHYS_PAGES); pages > 0)
    least = std::int64_t{pages} * ::sysconf(_SC_PAGESIZE);
  for (const auto limit : {MemoryWatch().limit_bytes(), slurm_memory_bytes(&std::getenv)})
    if (limit) least = std::min(least.value_or(*limit), *limit);
  return least;
}

}  // namespace farandole
