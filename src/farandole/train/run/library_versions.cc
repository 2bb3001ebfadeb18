#include "farandole/train/run/library_versions.h"

#include <fmt/format.h>
#include <hdf5.h>
#include <torch/version.h>

#include "farandole/base/version.h"
#include "farandole/comm/job/mpi_job.h"

namespace farandole {

std::map<std::string, std::string> library_versions() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return {{"farandole", version()},
          {"libtorch", TORCH_VERSION},
          {"mpi", MpiJob::library_version()},
          {"hdf5", fmt::format("{}.{}.{}", major, minor, release)}};
}

}  // namespace farandole
