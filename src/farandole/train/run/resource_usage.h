// What each rank uses of its node: CPU, memory, files.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/timeline/counters/counters.h"
#include "farandole/train/session.h"

namespace farandole {

// Of one rank, since a ResourceMeter was made. The timeline has the same over time, and the GPU's load.
struct ResourceUsage {
  double cpu_percent = 0;              // 100: one core.
  double memory_mib = 0;               // Resident, the most since the process started.
  double read_mb = 0, written_mb = 0;  // From and to storage, without the page cache; 10⁶ bytes.
};

class ResourceMeter {
 public:
  ResourceMeter();
  // Returns the usage of every rank, by rank.
  // Collective: every rank of the job must call this in the same order.
  std::vector<ResourceUsage> gather(Session& session) const;

 private:
  std::int64_t begin_ns_;
  ProcessCounters begin_;
};

// One line for each rank, with its host. For more than 16 ranks: their least, mean and most.
std::string resource_table(const std::vector<ResourceUsage>& usage, const std::vector<std::string>& hosts);

}  // namespace farandole
