#include "farandole/timeline/gpu/gpu_activity.h"

namespace farandole {

std::unique_ptr<GpuActivity> GpuActivity::start(Timeline&, const ActivitySteps&, const CollectiveLaunches&,
                                                std::string& why_not) {
  why_not = "Farandole was built without the CUDA Toolkit";
  return nullptr;
}

}  // namespace farandole
