// Written for nvcc alone: plain_cuda.py turns this file into C++.
#include "plain_kernels.h"

#include <type_traits>

namespace emu_test {
namespace {

template <class T, int kFactor>
__global__ void fill(T* out, T value, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = value * kFactor;
}

template <class T>
__global__ void scale(T* data, T factor, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) data[i] *= factor;
}

__global__ void kind(int* out, int) { *out = 1; }
__global__ void kind(int* out, float) { *out = 2; }

template <class T>
void scale_as(T* data, T factor, cudaStream_t stream) {
  scale<<<1, 32, 0, stream>>>(data, factor, 4);
}

__global__ void is_null(int* out, const void* pointer) { *out = pointer == nullptr; }

__global__ void reverse_ints(int* data) {
  extern __shared__ __align__(16) int buffer[];
  buffer[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

__global__ void of_a_table(int* out, int value) { *out = value; }
__global__ void twice_of_a_table(int* out, int value) { *out = 2 * value; }

// Each is known to the device only by its address.
template <int>
__global__ void by_address(int* out, int value) {
  *out = value;
}

constexpr int kBarrierLine = __LINE__ + 2;
__global__ void late_failure() {
  if (threadIdx.x > 0) __syncthreads();
}

struct Table {
  using Kernel = void (*)(int*, int);
  Kernel kernels[2] = {of_a_table, twice_of_a_table};
};

template <class T>
T two(T) {
  return T(2);
}

}  // namespace

void plain_fill(float* out, int count, cudaStream_t stream) {
  fill<float, (3 > 2) ? 4 : 5><<<dim3((count + 31) / 32), 32, 0, stream>>>(out, 1, count);  // 1 becomes 1.0f
}
void plain_null(int* out, cudaStream_t stream) { is_null<<<1, 1, 0, stream>>>(out, 0); }
void plain_reverse(int* data, int count, cudaStream_t stream) {
  reverse_ints<<<1, count, count * sizeof(int), stream>>>(data);
}
void plain_table(int* out, int which, cudaStream_t stream) {
  Table table;
  if (which < 2) (table.kernels[which])<<<1, two<int>(1) - 1, 0, stream>>>(out, 21);
}
void plain_deduced(float* data, double* other, cudaStream_t stream) {
  scale<<<1, 32, 0, stream>>>(data, 3.0f, 4);
  scale_as(other, 5.0, stream);
}
void plain_overloaded(int* out, cudaStream_t stream) {
  kind<<<1, 1, 0, stream>>>(out, 1);
  kind<<<1, 1, 0, stream>>>(out + 1, 1.0f);
}
void plain_legacy(int* out) { of_a_table<<<1, 1>>>(out, 7); }
void plain_refused(int* out, int threads) { of_a_table<<<1, threads>>>(out, 0); }
void plain_by_address(int* out, cudaStream_t stream) {
  int* second = out + 1;
  int* third = out + 2;
  int values[] = {1, 2, 3};
  void* of_first[] = {&out, &values[0]};
  void* of_second[] = {&second, &values[1]};
  void* of_third[] = {&third, &values[2]};
  cudaLaunchKernel((const void*)by_address<1>, dim3(1), dim3(1), of_first, 0, stream);
  cudaLaunchKernel(reinterpret_cast<void*>(&by_address<2>), dim3(1), dim3(1), of_second, 0, stream);
  cudaLaunchKernel(by_address<3>, dim3(1), dim3(1), of_third, 0, stream);
}
cudaGraph_t plain_node(int* out) {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  int value = 4;
  void* arguments[] = {&out, &value};
  cudaKernelNodeParams params = {};
  params.func = (void*)by_address<4>;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphCreate(&graph, 0);
  cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params);
  return graph;
}
int plain_failure(cudaStream_t stream) {
  late_failure<<<1, 2, 0, stream>>>();
  return kBarrierLine;
}

}  // namespace emu_test
