#include "gpu/kernels.h"

#include <cuda_runtime.h>
#include <vector>

namespace farandole {

__global__ void add_one(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
}

namespace {

void launch(float* values, int count, cudaStream_t stream) {
  add_one<<<(count + 255) / 256, 256, 0, stream>>>(values, count);
}

}  // namespace

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

bool add_on_gpu(int elements) {
  std::vector<float> values(elements, 1.0f);
  const size_t bytes = values.size() * sizeof(float);
  float* device = nullptr;
  if (cudaMalloc(&device, bytes) != cudaSuccess) return false;
  cudaMemcpy(device, values.data(), bytes, cudaMemcpyHostToDevice);
  launch(device, elements, nullptr);
  cudaMemcpy(values.data(), device, bytes, cudaMemcpyDeviceToHost);
  const bool right = values.front() == 2.0f && values.back() == 2.0f;
  cudaFree(device);
  return right && cudaDeviceSynchronize() == cudaSuccess;
}

bool add_on_gpu_graph(int launches) {
  float* device = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (cudaMalloc(&device, 1024 * sizeof(float)) != cudaSuccess) return false;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  for (int i = 0; i < launches; ++i) launch(device, 1024, stream);
  cudaStreamEndCapture(stream, &graph);
  bool done = cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
  done = done && cudaGraphLaunch(executable, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess;
  if (executable != nullptr) cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFree(device);
  return done;
}

}  // namespace farandole
