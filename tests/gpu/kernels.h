// Work for a GPU, for tests. Each call returns when the work is done; false where CUDA refuses.
#pragma once

namespace farandole {

int gpu_count();                      // 0 without a driver
bool add_on_gpu(int elements);        // one kernel, add_one, between a copy in and a copy out
bool add_on_gpu_graph(int launches);  // so many kernels in one graph

}  // namespace farandole
