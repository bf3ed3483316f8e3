// Kernels that are compiled while the program runs. Ops that have such kernels include only this header.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/embedded_text.h"
#include "graphsink/cuda.h"
#include "graphsink/op.h"

namespace graphsink {

struct KernelSource {
  std::string kernel;                     // the name of the kernel, which is declared extern "C"
  std::string text;                       // CUDA C++
  std::span<const EmbeddedText> headers;  // which the text may include, under these names
};

// A kernel on a device.
struct RunTimeKernel;

// Compiles the source for the device of `args`, a CudaDevice, and loads it; or takes it from what the device compiled
// before, or from the cache on disk. Call it in prepare(). Throws Error, naming the op, if the source does not compile.
std::shared_ptr<const RunTimeKernel> load_kernel(const KernelSource& source, const PrepareArgs& args);

// Launches the kernel like CudaArgs::launch(). Its only parameter is a struct, of which `parameter` is the address.
void launch(const CudaArgs& args, const RunTimeKernel& kernel, Extent grid, Extent block, void* parameter);

}  // namespace graphsink
