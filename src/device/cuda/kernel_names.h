// Reads the names of captured kernels.
#pragma once

#include <cuda.h>

#include <string>

#include "device/cuda/check.h"

namespace graphsink {

class KernelNames {
 public:
  explicit KernelNames(Calls& calls);

  // The name in the source, with parameter types: "scale(float*, float)". "without a name" if the driver does not know.
  std::string of(cudaGraphNode_t kernel) const;
  std::string of(const CUDA_KERNEL_NODE_PARAMS& kernel) const;

 private:
  Calls& calls_;
  decltype(&cuGraphKernelNodeGetParams) get_params_ = nullptr;
  decltype(&cuFuncGetName) function_name_ = nullptr;
  decltype(&cuKernelGetName) kernel_name_ = nullptr;
};

}  // namespace graphsink
