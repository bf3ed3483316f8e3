// What a program that is written for nvcc has in its headers.
#pragma once

// *total += the sum of the block's part of `values`, by dynamic shared memory of a float for each thread.
template <class T>
__global__ void add_all(T* total, const T* values, int size) {
  extern __shared__ float partial[];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  partial[threadIdx.x] = i < size ? values[i] : 0;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, partial[0]);
}
