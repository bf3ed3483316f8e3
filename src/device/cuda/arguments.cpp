#include "device/cuda/arguments.h"

#include "device/cuda/driver.h"

namespace graphsink {

KernelArguments::KernelArguments(Calls& calls) : calls_(calls) {
  find_driver_function(calls, "cuGraphKernelNodeGetParams", get_params_);
  find_driver_function(calls, "cuFuncGetParamInfo", function_info_);
  find_driver_function(calls, "cuKernelGetParamInfo", kernel_info_);
}

CUresult KernelArguments::size_of_parameter(const CUDA_KERNEL_NODE_PARAMS& kernel, std::size_t index,
                                            std::size_t& bytes) const {
  std::size_t offset = 0;
  ++calls_.counters.api_calls;
  return kernel.func ? function_info_(kernel.func, index, &offset, &bytes)
                     : kernel_info_(kernel.kern, index, &offset, &bytes);
}

Arguments KernelArguments::read(cudaGraphNode_t node) const {
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  calls_.check(runtime_code(get_params_(node, &kernel)), "cuGraphKernelNodeGetParams");
  Arguments arguments;
  // A library may pass its arguments as one opaque block. Then the individual parameters are unknown.
  bool is_known = kernel.kernelParams && (kernel.func || kernel.kern);
  std::size_t bytes = 0;
  for (std::size_t i = 0; is_known && size_of_parameter(kernel, i, bytes) == CUDA_SUCCESS; ++i) {
    const auto* begin = static_cast<const std::byte*>(kernel.kernelParams[i]);
    arguments.emplace_back(begin, begin + bytes);
  }
  return arguments;
}

}  // namespace graphsink
