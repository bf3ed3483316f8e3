#include "device/cuda/run_time_kernel.h"

#include <map>

#include "device/cuda/device.h"
#include "device/cuda/kernel_cache.h"
#include "device/cuda/nvrtc.h"

namespace graphsink {
namespace {

// Unloading frees memory. A capture in progress must neither forbid this nor be broken by it.
cudaError_t unload(cudaLibrary_t library, const Log& log) {
  RelaxedCapture always_allowed(log);
  return cudaLibraryUnload(library);
}
using LibraryHandle = Handle<cudaLibrary_t, unload, "cudaLibraryUnload">;

}  // namespace

struct RunTimeKernel {
  LibraryHandle library;
  cudaKernel_t kernel = nullptr;
};

// Kernels that a device has compiled, or loaded from the cache on disk, so far, by source.
class RunTimeKernels {
 public:
  RunTimeKernels(Calls& calls, int sm, const Nvrtc& compiler)
      : calls_(calls), compiler_(compiler), cache_(calls.log), options_(options_for(sm)) {}

  std::shared_ptr<const RunTimeKernel> load(const KernelSource& source, const PrepareArgs& args) {
    std::shared_ptr<const RunTimeKernel>& known = known_[source.text];
    if (!known) known = make(source, args);
    return known;
  }

 private:
  static std::vector<std::string> options_for(int sm) {
    // The results must be those of the kernels that nvcc compiled: no contraction, no fast math.
    return {"-std=c++20", "-arch=sm_" + std::to_string(sm), "-fmad=false", "-default-device"};
  }

  // All that the code depends on.
  std::string key_of(const KernelSource& source) const {
    std::string key = std::string("graphsink ") + version() + "\n" + compiler_.version() + "\n";
    for (const std::string& option : options_) key += option + "\n";
    for (const EmbeddedText& header : source.headers) key += std::string(header.name) + "\n" + header.text + '\0';
    return key + source.text;
  }

  std::shared_ptr<const RunTimeKernel> make(const KernelSource& source, const PrepareArgs& args) {
    CurrentDevice current(calls_);
    RelaxedCapture relaxed(calls_);
    const std::string key = key_of(source);
    if (const auto code = cache_.find(key)) {
      RunTimeKernel kernel;
      const Loading loading = load(*code, source, kernel);
      if (loading.code == cudaSuccess) {
        ++calls_.counters.cached_kernels;
        return std::make_shared<RunTimeKernel>(std::move(kernel));
      }
      calls_.log.warn({source.kernel, " is compiled again, because what the cache has cannot be loaded: ",
                       describe(loading.code, loading.call)});
    }
    const Nvrtc::Compiled compiled =
        compiler_.compile(source.text, (source.kernel + ".cu").c_str(), source.headers, options_);
    auto fail = [&](const std::string& problem) {
      throw Error(std::string(args.op), args.where, source.kernel + ": " + problem,
                  "see Elements::text where an op of the program's own is part of it; with Tuning::fuse = false "
                  "all ops have kernels of their own");
    };
    if (!compiled.problem.empty()) fail(compiled.problem);
    ++calls_.counters.compiled_kernels;
    RunTimeKernel kernel;
    if (const Loading loading = load(compiled.code, source, kernel); loading.code != cudaSuccess)
      fail(describe(loading.code, loading.call));
    cache_.add(key, compiled.code);
    return std::make_shared<RunTimeKernel>(std::move(kernel));
  }

  struct Loading {
    cudaError_t code;
    const char* call;
  };
  // CUDA loads a kernel at its first use, which must not fall into a capture: cudaFuncGetAttributes() is a use.
  Loading load(const std::string& code, const KernelSource& source, RunTimeKernel& kernel) {
    cudaFuncAttributes attributes;
    Loading loading{
        cudaLibraryLoadData(kernel.library.out(calls_.log), code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData"};
    if (loading.code == cudaSuccess)
      loading = {cudaLibraryGetKernel(&kernel.kernel, kernel.library.get(), source.kernel.c_str()),
                 "cudaLibraryGetKernel"};
    if (loading.code == cudaSuccess)
      loading = {cudaFuncGetAttributes(&attributes, static_cast<const void*>(kernel.kernel)), "cudaFuncGetAttributes"};
    ++calls_.counters.api_calls;
    if (is_sticky(loading.code)) calls_.fail(loading.code, loading.call);
    if (loading.code != cudaSuccess) (void)cudaGetLastError();  // reported by the caller
    return loading;
  }

  Calls& calls_;
  const Nvrtc& compiler_;
  KernelCache cache_;
  const std::vector<std::string> options_;
  std::map<std::string, std::shared_ptr<const RunTimeKernel>> known_;
};

std::shared_ptr<const RunTimeKernel> load_kernel(const KernelSource& source, const PrepareArgs& args) {
  // PrepareArgs::device is a Device*.
  auto& device = static_cast<CudaDevice&>(*static_cast<Device*>(args.device));
  if (!device.run_time_kernels)
    device.run_time_kernels = std::make_shared<RunTimeKernels>(device.calls(), device.target().sm, device.compiler());
  return device.run_time_kernels->load(source, args);
}

void launch(const CudaArgs& args, const RunTimeKernel& kernel, Extent grid, Extent block, void* parameter) {
  args.launch_loaded(static_cast<const void*>(kernel.kernel), grid, block, 0, &parameter);
}

}  // namespace graphsink
