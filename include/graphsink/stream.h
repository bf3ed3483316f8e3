// The type of a CUDA stream, for programs that include no header of CUDA.
#pragma once

struct CUstream_st;
using cudaStream_t = CUstream_st*;  // as <cuda_runtime.h> declares it
