// Launches in the file that plain_cuda.py translates.
#pragma once

#include <cuda_runtime.h>

namespace emu_test {

void plain_fill(float* out, int count, cudaStream_t stream);  // 4 everywhere
void plain_null(int* out, cudaStream_t stream);               // 1
void plain_reverse(int* data, int count, cudaStream_t stream);
void plain_table(int* out, int which, cudaStream_t stream);           // 21, or 42
void plain_deduced(float* data, double* other, cudaStream_t stream);  // four elements times 3, and times 5
void plain_overloaded(int* out, cudaStream_t stream);                 // 1, 2
void plain_legacy(int* out);                                          // 7
void plain_refused(int* out, int threads);
void plain_by_address(int* out, cudaStream_t stream);  // 1, 2, 3, by cudaLaunchKernel
cudaGraph_t plain_node(int* out);                      // of one kernel node, which writes 4
int plain_failure(cudaStream_t stream);                // the line of the barrier that some threads never reach

}  // namespace emu_test
