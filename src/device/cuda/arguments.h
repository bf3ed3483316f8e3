// Reads the arguments of captured kernels.
#pragma once

#include <cuda.h>

#include "device/cuda/check.h"

namespace graphsink {

// Reads the arguments back from kernel nodes of a captured graph.
class KernelArguments {
 public:
  explicit KernelArguments(Calls& calls);

  // Returns the bytes of each argument. The result is empty if the driver does not know the parameters of the kernel.
  Arguments read(cudaGraphNode_t node) const;

 private:
  CUresult size_of_parameter(const CUDA_KERNEL_NODE_PARAMS& kernel, std::size_t index, std::size_t& bytes) const;

  Calls& calls_;
  decltype(&cuGraphKernelNodeGetParams) get_params_ = nullptr;
  decltype(&cuFuncGetParamInfo) function_info_ = nullptr;
  decltype(&cuKernelGetParamInfo) kernel_info_ = nullptr;
};

}  // namespace graphsink
