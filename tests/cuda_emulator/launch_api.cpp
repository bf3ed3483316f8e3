// Launches and kernel attributes.
#include <algorithm>

#include "runtime.h"
#include "simt_engine.h"

namespace emu {
namespace {

constexpr int kThreadsPerMultiprocessor = 2048;
constexpr std::size_t kSharedPerMultiprocessor = 228 << 10;

std::size_t volume(const dim3& d) { return static_cast<std::size_t>(d.x) * d.y * d.z; }

std::string text_of(const dim3& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

cudaError_t check_dimensions(const dim3& grid, const dim3& block) {
  const dim3 most(kMaxThreadsPerBlock, kMaxThreadsPerBlock, 64);
  if (block.x > most.x || block.y > most.y || block.z > most.z) {
    return explain(cudaErrorInvalidValue, "One or more of block dimensions of " + text_of(block) +
                                              " exceeds correspsonding maximum value of " + text_of(most));
  }
  const bool fits = volume(grid) > 0 && volume(block) > 0 && volume(block) <= kMaxThreadsPerBlock &&
                    grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

// 8 blocks are what every device of capability 9.0 has room for.
cudaError_t check_cluster(const dim3& grid, const cudaLaunchAttributeValue& value) {
  const dim3 cluster = cluster_of(value);
  if (volume(cluster) == 0 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return cudaErrorInvalidValue;
  }
  return volume(cluster) > 8 ? cudaErrorInvalidClusterSize : cudaSuccess;
}

cudaError_t take_attributes(const cudaLaunchConfig_t& config, KernelWork& kernel) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributePriority:
        break;
      case cudaLaunchAttributeClusterDimension:
        if (const cudaError_t invalid = check_cluster(config.gridDim, attribute.val); invalid != cudaSuccess) {
          return invalid;
        }
        kernel.attributes[attribute.id] = attribute.val;
        break;
      case cudaLaunchAttributeCooperative:
        kernel.attributes[attribute.id] = attribute.val;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        kernel.programmatic = attribute.val.programmaticStreamSerializationAllowed != 0;
        break;
      default:
        return cudaErrorNotSupported;
    }
  }
  return cudaSuccess;
}

cudaError_t prepare_launch(Runtime& r, const cudaLaunchConfig_t& config, const void* function, void** arguments,
                           KernelWork& work) {
  if (config.dynamicSmemBytes > kMaxSharedBytes) return cudaErrorInvalidValue;
  if (const cudaError_t refused = take_attributes(config, work); refused != cudaSuccess) return refused;
  cudaKernelNodeParamsV2 params{};
  params.func = const_cast<void*>(function);
  params.gridDim = config.gridDim;
  params.blockDim = config.blockDim;
  params.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  params.kernelParams = arguments;
  return prepare_kernel(r, params, work);
}

cudaError_t launch_kernel(Runtime& r, Lock& lock, const cudaLaunchConfig_t& config, const void* function,
                          void** arguments) {
  CUstream_st* stream = find_stream(r, config.stream);
  if (stream != nullptr && stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  KernelWork work;
  const cudaError_t invalid = prepare_launch(r, config, function, arguments, work);
  if (invalid == cudaSuccess) return issue(r, lock, config.stream, std::move(work));
  // A launch that the driver refuses spoils the capture; of a function that is none the runtime does not ask it.
  const bool asked_driver = invalid != cudaErrorInvalidDeviceFunction;
  if (asked_driver && stream != nullptr && stream->capture != nullptr) invalidate(*stream->capture);
  return invalid;
}

int blocks_per_multiprocessor(int block, std::size_t shared) {
  if (block <= 0 || block > static_cast<int>(kMaxThreadsPerBlock)) return 0;
  const int warps = (block + 31) / 32;
  int blocks = std::min(32, kThreadsPerMultiprocessor / (warps * 32));
  // A kibibyte of shared memory per block is the system's.
  blocks = std::min(blocks, static_cast<int>(kSharedPerMultiprocessor / (shared + 1024)));
  return shared > kMaxSharedBytes ? 0 : blocks;
}

int dynamic_limit(Runtime& r, const void* function) {
  const std::lock_guard guard(r.kernel_mutex);
  const auto kernel = r.kernels.find(function);
  return kernel == r.kernels.end() ? 48 << 10 : kernel->second.max_dynamic_shared;
}

cudaError_t occupancy(const char* name, int* blocks, const void* function, int block, std::size_t shared) {
  return api(name, [&](Runtime&, Lock&) -> cudaError_t {
    if (blocks == nullptr || function == nullptr || block <= 0) return cudaErrorInvalidValue;
    *blocks = blocks_per_multiprocessor(block, shared);
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t prepare_kernel(Runtime& r, const cudaKernelNodeParamsV2& params, KernelWork& work) {
  if (params.extra != nullptr) return cudaErrorNotSupported;
  const cudaError_t invalid = check_dimensions(params.gridDim, params.blockDim);
  if (invalid != cudaSuccess) return invalid;
  const std::lock_guard guard(r.kernel_mutex);
  const auto found = r.kernels.find(params.func);
  if (found == r.kernels.end() || found->second.signature.invoke == nullptr) return cudaErrorInvalidDeviceFunction;
  const Kernel& kernel = found->second;
  if (params.sharedMemBytes > static_cast<std::size_t>(kernel.max_dynamic_shared)) return cudaErrorInvalidValue;
  if (kernel.signature.count > 0 && params.kernelParams == nullptr) return cudaErrorInvalidValue;
  work.device = current_device();
  work.function = params.func;
  work.grid = params.gridDim;
  work.block = params.blockDim;
  work.shared_bytes = params.sharedMemBytes;
  work.invoke = kernel.signature.invoke;
  for (unsigned i = 0; i < kernel.signature.count; ++i) {
    const auto* bytes = static_cast<const std::byte*>(params.kernelParams[i]);
    work.arguments.emplace_back(bytes, bytes + kernel.signature.sizes[i]);
  }
  if (kernel.signature.clear_padding != nullptr) {
    std::vector<void*> copies;
    for (auto& argument : work.arguments) copies.push_back(argument.data());
    kernel.signature.clear_padding(copies.data());
    work.has_clear_padding = true;
  }
  return cudaSuccess;
}

cudaError_t launch_library_kernel(const char* name, cudaStream_t stream, std::function<cudaError_t()> body,
                                  const std::vector<const void*>& addresses) {
  return api("a kernel of a library", [&](Runtime& r, Lock& lock) {
    KernelWork work;
    work.native = std::move(body);
    work.native_name = name;
    work.device = current_device();
    for (const void* address : addresses) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&address);
      work.arguments.emplace_back(bytes, bytes + sizeof address);
    }
    return issue(r, lock, stream, std::move(work));
  });
}

bool run_beside() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.executor.run_beside(lock);
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return api("cudaLaunchKernelExC", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (config == nullptr || function == nullptr) return cudaErrorInvalidValue;
    return emu::launch_kernel(r, lock, *config, function, arguments);
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return api("cudaLaunchKernel", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    return emu::launch_kernel(r, lock, {grid, block, shared, stream, nullptr, 0}, function, arguments);
  });
}

// Its blocks run one after the other, so a barrier of the whole grid has nothing to wait with; kernels that use one do
// not compile here.
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return api("cudaLaunchCooperativeKernel", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    return emu::launch_kernel(r, lock, {grid, block, shared, stream, &cooperative, 1}, function, arguments);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (function == nullptr) return cudaErrorInvalidValue;
    return emu::issue(r, lock, stream, emu::HostWork{function, data});
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return api("cudaFuncGetAttributes", [&](Runtime& r, Lock&) -> cudaError_t {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = cudaFuncAttributes{};
    attributes->maxThreadsPerBlock = static_cast<int>(emu::kMaxThreadsPerBlock);
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = emu::dynamic_limit(r, function);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", [&](Runtime& r, Lock&) -> cudaError_t {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorNotSupported;
    if (value < 0 || static_cast<std::size_t>(value) > emu::kMaxSharedBytes) return cudaErrorInvalidValue;
    const std::lock_guard guard(r.kernel_mutex);
    r.kernels[function].max_dynamic_shared = value;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block, size_t shared) {
  return emu::occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessor", blocks, function, block, shared);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block,
                                                                   size_t shared, unsigned) {
  return emu::occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks, function, block, shared);
}
