#include "device/cuda/kernel_names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "device/cuda/driver.h"

namespace graphsink {
namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : symbol;
}

}  // namespace

KernelNames::KernelNames(Calls& calls) : calls_(calls) {
  find_driver_function(calls, "cuGraphKernelNodeGetParams", get_params_);
  find_driver_function(calls, "cuFuncGetName", function_name_);
  find_driver_function(calls, "cuKernelGetName", kernel_name_);
}

std::string KernelNames::of(cudaGraphNode_t kernel) const {
  CUDA_KERNEL_NODE_PARAMS params = {};
  calls_.check(runtime_code(get_params_(kernel, &params)), "cuGraphKernelNodeGetParams");
  return of(params);
}

std::string KernelNames::of(const CUDA_KERNEL_NODE_PARAMS& kernel) const {
  const char* symbol = nullptr;
  const CUresult code = kernel.func ? function_name_(&symbol, kernel.func) : kernel_name_(&symbol, kernel.kern);
  return code == CUDA_SUCCESS && symbol ? demangled(symbol) : "without a name";
}

}  // namespace graphsink
