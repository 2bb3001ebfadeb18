#include "gpu/double/kernels.h"

#include <algorithm>

#include "farandole/comm/gpu/kernel_jobs.h"

namespace gpu_double {
namespace {

Launch copy(dim3 blocks, dim3 threads, void** arguments) {
  const auto batch = *static_cast<const farandole::BatchedCopy*>(arguments[0]);
  return {{{batch.pieces, batch.count * sizeof *batch.pieces, false}}, [=](const AddAccess& add) {
            for (std::uint64_t i = 0; i < batch.count; ++i) {
              add({batch.pieces[i].from, batch.pieces[i].bytes, false});
              add({batch.pieces[i].to, batch.pieces[i].bytes, true});
            }
            for (unsigned block = 0; block < blocks.x; ++block)
              for (unsigned thread = 0; thread < threads.x; ++thread)
                farandole::copy_part(batch, block, thread, threads.x);
          }};
}

Launch scan(dim3 blocks, dim3 threads, void** arguments) {
  const auto job = *static_cast<const farandole::NonfiniteScan*>(arguments[0]);
  if (job.count == 0) return {{}, [](const AddAccess&) {}};
  return {{{job.data, job.count * job.element_size, false},
           {job.first, sizeof *job.first, true},
           {job.found, sizeof *job.found, true}},
          [=](const AddAccess&) {
            const std::uint64_t all = std::uint64_t{blocks.x} * threads.x;
            for (std::uint64_t thread = 0; thread < all; ++thread)
              farandole::scan_nonfinite(job, thread, all, [](std::uint64_t* at, std::uint64_t value) {
                *at = std::min(*at, value);
              });
          }};
}

Launch reduce(dim3 blocks, dim3 threads, void** arguments) {
  const auto job = *static_cast<const farandole::PeerReduction*>(arguments[0]);
  const auto bytes = job.count * size_of(job.dtype);
  std::vector<Access> accesses;
  for (std::uint32_t k = 0; k < job.input_count; ++k) accesses.push_back({job.inputs[k], bytes, false});
  for (std::uint32_t o = 0; o < job.output_count; ++o) accesses.push_back({job.outputs[o], bytes, true});
  return {accesses, [=](const AddAccess&) {
            const std::uint64_t all = std::uint64_t{blocks.x} * threads.x;
            for (std::uint64_t thread = 0; thread < all; ++thread) farandole::reduce_peers(job, thread, all);
          }};
}

}  // namespace

Kernel find_kernel(const std::string& name) {
  if (name == "farandole_copy") return &copy;
  if (name == "farandole_scan_nonfinite") return &scan;
  if (name == "farandole_reduce_peers") return &reduce;
  return nullptr;
}

}  // namespace gpu_double
