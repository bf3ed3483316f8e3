// Device properties, errors and driver entry points.
#include <cuda_profiler_api.h>

#include <cstdio>

#include "runtime.h"
#include "simt_engine.h"

namespace emu {
namespace {

constexpr int kMultiprocessors = 8;

thread_local int device_of_thread = 0;

bool is_device(Runtime& r, int device) { return device >= 0 && device < r.device_count; }

struct Attribute {
  cudaDeviceAttr name;
  int value;
};

constexpr Attribute kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, static_cast<int>(kMaxThreadsPerBlock)},
    {cudaDevAttrMaxBlockDimX, static_cast<int>(kMaxThreadsPerBlock)},
    {cudaDevAttrMaxBlockDimY, static_cast<int>(kMaxThreadsPerBlock)},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(kMaxSharedBytes)},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMultiProcessorCount, kMultiprocessors},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrL2CacheSize, 1 << 20},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrAsyncEngineCount, 1},
    {cudaDevAttrIntegrated, 0},
    {cudaDevAttrManagedMemory, 0},
    {cudaDevAttrConcurrentManagedAccess, 0},
    {cudaDevAttrPageableMemoryAccess, 0},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrCooperativeLaunch, 0},
    {cudaDevAttrComputePreemptionSupported, 0},
    {cudaDevAttrMaxAccessPolicyWindowSize, static_cast<int>(kMaxAccessPolicyWindow)},
};

cudaError_t attribute_value(cudaDeviceAttr name, int& value) {
  for (const Attribute& attribute : kAttributes) {
    if (attribute.name != name) continue;
    value = attribute.value;
    return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

void describe(Runtime& r, cudaDeviceProp& p) {
  p = cudaDeviceProp{};
  std::snprintf(p.name, sizeof p.name, "software CUDA device");
  p.totalGlobalMem = r.memory.total_bytes();
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = kMaxSharedBytes;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.reservedSharedMemPerBlock = 1024;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = static_cast<int>(kMaxThreadsPerBlock);
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = 9;
  p.multiProcessorCount = kMultiprocessors;
  p.concurrentKernels = p.unifiedAddressing = p.canMapHostMemory = p.streamPrioritiesSupported = 1;
  p.asyncEngineCount = 1;
  p.l2CacheSize = 1 << 20;
  p.accessPolicyMaxWindowSize = static_cast<int>(kMaxAccessPolicyWindow);
  p.memoryBusWidth = 64;
}

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "driver too old for this runtime"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "operating system call failed"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "operation not permitted in this state"},
    {cudaErrorLossyQuery, "cudaErrorLossyQuery", "the query would leave out edge data"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge", "operation would merge two capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not begun in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capture has work that was not joined"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency crosses the boundary of the capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would depend on the capture through the legacy stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to end a capture from another thread"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure", "the graph update failed"},
    {cudaErrorUnsupportedLimit, "cudaErrorUnsupportedLimit", "limit is not supported on this architecture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText& text_of(cudaError_t code) {
  static constexpr ErrorText kUnlisted{cudaErrorUnknown, "cudaErrorUnlisted",
                                       "error the software device has no text for"};
  for (const ErrorText& entry : kErrors) {
    if (entry.code == code) return entry;
  }
  return kUnlisted;
}

cudaError_t version(const char* name, int* value) {
  return api(name, [&](Runtime&, Lock&) -> cudaError_t {
    if (value == nullptr) return cudaErrorInvalidValue;
    *value = 13000;
    return cudaSuccess;
  });
}

}  // namespace

int current_device() { return device_of_thread; }

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", [&](Runtime& r, Lock&) -> cudaError_t {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = r.device_count;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", [&](Runtime&, Lock&) -> cudaError_t {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = emu::current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [&](Runtime& r, Lock&) -> cudaError_t {
    if (!emu::is_device(r, device)) {
      return emu::explain(cudaErrorInvalidDevice, "Invalid device number " + std::to_string(device) +
                                                      " provided, must be in the range of 0 to " +
                                                      std::to_string(r.device_count - 1));
    }
    emu::device_of_thread = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", [&](Runtime& r, Lock&) -> cudaError_t {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!emu::is_device(r, device) || !emu::is_device(r, peer)) return cudaErrorInvalidDevice;
    *can = device != peer && r.has_peer_access ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", [&](Runtime& r, Lock&) -> cudaError_t {
    const int device = emu::current_device();
    if (flags != 0) return cudaErrorInvalidValue;
    if (!emu::is_device(r, peer) || peer == device || !r.has_peer_access) return cudaErrorInvalidDevice;
    return r.peers.insert({device, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api("cudaDeviceGetAttribute", [&](Runtime& r, Lock&) -> cudaError_t {
    if (value == nullptr) return cudaErrorInvalidValue;
    return emu::is_device(r, device) ? emu::attribute_value(attribute, *value) : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", [&](Runtime& r, Lock&) -> cudaError_t {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!emu::is_device(r, device)) return cudaErrorInvalidDevice;
    emu::describe(r, *properties);
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* value) { return emu::version("cudaDriverGetVersion", value); }
cudaError_t cudaRuntimeGetVersion(int* value) { return emu::version("cudaRuntimeGetVersion", value); }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&](Runtime&, Lock&) -> cudaError_t {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (!r.captures.empty()) {
      emu::invalidate_all(r);
      return cudaErrorStreamCaptureUnsupported;
    }
    r.executor.wait_all(lock);
    return r.executor.sticky();
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t) {
  return api("cudaDeviceSetLimit", [&](Runtime& r, Lock&) -> cudaError_t {
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    return limit <= cudaLimitPersistingL2CacheSize ? cudaSuccess : cudaErrorUnsupportedLimit;
  });
}

cudaError_t cudaProfilerStart() {
  return api("cudaProfilerStart", [](Runtime& r, Lock&) { return emu::refuse_unsafe(r); });
}

cudaError_t cudaProfilerStop() {
  return api("cudaProfilerStop", [](Runtime& r, Lock&) { return emu::refuse_unsafe(r); });
}

cudaError_t cudaGetLastError() { return emu::last_error_of_thread(true); }
cudaError_t cudaPeekAtLastError() { return emu::last_error_of_thread(false); }
const char* cudaGetErrorName(cudaError_t code) { return emu::text_of(code).name; }
const char* cudaGetErrorString(cudaError_t code) { return emu::text_of(code).text; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  return api("cudaGetDriverEntryPointByVersion", [&](Runtime&, Lock&) -> cudaError_t {
    if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
    *function = emu::driver_entry(symbol);
    if (status != nullptr)
      *status = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
  });
}
