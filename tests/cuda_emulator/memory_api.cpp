// Allocation, copies and fills.
#include "runtime.h"

namespace emu {
namespace {

cudaError_t allocate_pinned(Runtime& r, void** out, std::size_t bytes, unsigned flags) {
  if (out == nullptr || flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) {
    return cudaErrorInvalidValue;
  }
  if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
  *out = bytes == 0 ? nullptr : r.memory.allocate_pinned(bytes);
  return bytes != 0 && *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// What a copy reads, row after row.
std::shared_ptr<std::vector<std::byte>> stage(const CopyWork& work) {
  auto staged = std::make_shared<std::vector<std::byte>>();
  staged->reserve(work.rows * work.bytes);
  for (std::size_t row = 0; row < work.rows; ++row) {
    const auto* bytes = static_cast<const std::byte*>(work.source) + row * work.source_pitch;
    staged->insert(staged->end(), bytes, bytes + work.bytes);
  }
  return staged;
}

// A pageable source is read before the call returns, a pageable target is complete when it does.
cudaError_t copy(Runtime& r, Lock& lock, CopyWork work, cudaStream_t handle, bool synchronous) {
  if (const cudaError_t invalid = check_copy(r, work); invalid != cudaSuccess) return invalid;
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (work.bytes == 0 || work.rows == 0) return check_capture(r, *stream);
  const bool capturing = stream->capture != nullptr;
  const Place source = r.memory.place(work.source), target = r.memory.place(work.target);
  if (!capturing && source == Place::kPageable) work.staged = stage(work);
  const bool host_to_host = source != Place::kDevice && target != Place::kDevice;
  if (const cudaError_t refused = issue(r, lock, handle, std::move(work)); refused != cudaSuccess) return refused;
  if (!capturing && (synchronous || target == Place::kPageable || host_to_host)) {
    r.executor.wait(lock, OpRef(stream->tail));
    return r.executor.sticky();
  }
  return cudaSuccess;
}

// Synchronous calls use the legacy stream. They are not among the calls that the mode of a capture forbids.
cudaError_t check_synchronous(Runtime& r) { return check_capture(r, *find_stream(r, nullptr)); }

// The driver has a function for each direction.
void use_copy_name(Memory& memory, const CopyWork& copy, bool synchronous) {
  const bool to_device = memory.place(copy.target) == Place::kDevice;
  const bool from_device = memory.place(copy.source) == Place::kDevice;
  if (to_device && from_device) {
    use_driver_name(synchronous ? "cuMemcpyDtoD_v2" : "cuMemcpyDtoDAsync_v2");
  } else if (to_device) {
    use_driver_name(synchronous ? "cuMemcpyHtoD_v2" : "cuMemcpyHtoDAsync_v2");
  } else if (from_device) {
    use_driver_name(synchronous ? "cuMemcpyDtoH_v2" : "cuMemcpyDtoHAsync_v2");
  }
}

CopyWork rows_copy(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                   std::size_t bytes, std::size_t rows, cudaMemcpyKind kind) {
  return {target, source, bytes, kind, nullptr, -1, rows, target_pitch, source_pitch};
}

// Whether a copy between devices may name this device for this memory.
bool is_on(Runtime& r, const void* pointer, int device) {
  return r.memory.device_of(pointer).value_or(device) == device;
}

FillWork bytes_fill(void* target, int value, std::size_t bytes) {
  FillWork work;
  work.params = {target, 0, static_cast<unsigned char>(value), 1, bytes, 1};
  return work;
}

cudaError_t fill(Runtime& r, Lock& lock, const FillWork& work, cudaStream_t stream) {
  if (const cudaError_t invalid = check_fill(r, work.params); invalid != cudaSuccess) return invalid;
  if (work.params.width == 0) return cudaSuccess;
  return issue(r, lock, stream, work);
}

}  // namespace
}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;
using emu::When;

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return api("cudaMalloc", [&](Runtime& r, Lock&) -> cudaError_t {
    if (out == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    *out = bytes == 0 ? nullptr : r.memory.allocate(bytes, emu::current_device());
    return bytes != 0 && *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return api("cudaFree", When::kAlways, [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    if (pointer == nullptr) return cudaSuccess;
    r.executor.wait_all(lock);
    if (r.graph_allocations.erase(pointer) > 0) return cudaSuccess;
    return r.memory.release(pointer) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  return api("cudaHostAlloc", [&](Runtime& r, Lock&) { return emu::allocate_pinned(r, out, bytes, flags); });
}

cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return api("cudaMallocHost", [&](Runtime& r, Lock&) { return emu::allocate_pinned(r, out, bytes, 0); });
}

// Does not wait for copies that still use the memory: nothing promises that.
cudaError_t cudaFreeHost(void* pointer) {
  return api("cudaFreeHost", When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    if (pointer == nullptr) return cudaSuccess;
    return r.memory.release_pinned(pointer) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", [&](Runtime& r, Lock&) -> cudaError_t {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *free = r.memory.free_bytes();
    *total = r.memory.total_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpyAsync", [&](Runtime& r, Lock& lock) {
    const emu::CopyWork work{target, source, bytes, kind, nullptr};
    emu::use_copy_name(r.memory, work, false);
    return emu::copy(r, lock, work, stream, false);
  });
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", [&](Runtime& r, Lock& lock) -> cudaError_t {
    const emu::CopyWork work{target, source, bytes, kind, nullptr};
    emu::use_copy_name(r.memory, work, true);
    if (const cudaError_t refused = emu::check_synchronous(r); refused != cudaSuccess) return refused;
    return emu::copy(r, lock, work, nullptr, true);
  });
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpy2DAsync", [&](Runtime& r, Lock& lock) {
    emu::use_driver_name("cuMemcpy2DAsync_v2");
    return emu::copy(r, lock, emu::rows_copy(target, target_pitch, source, source_pitch, width, height, kind), stream,
                     false);
  });
}

cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  return api("cudaMemcpy2D", [&](Runtime& r, Lock& lock) -> cudaError_t {
    emu::use_driver_name("cuMemcpy2D_v2");
    if (const cudaError_t refused = emu::check_synchronous(r); refused != cudaSuccess) return refused;
    return emu::copy(r, lock, emu::rows_copy(target, target_pitch, source, source_pitch, width, height, kind), nullptr,
                     true);
  });
}

// Without peer access the bytes go through the host, which nobody sees.
cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device, size_t bytes,
                                cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", [&](Runtime& r, Lock& lock) -> cudaError_t {
    for (const int device : {target_device, source_device}) {
      if (device < 0 || device >= r.device_count) return cudaErrorInvalidDevice;
    }
    if (!emu::is_on(r, target, target_device) || !emu::is_on(r, source, source_device)) return cudaErrorInvalidValue;
    return emu::copy(r, lock, {target, source, bytes, cudaMemcpyDeviceToDevice, nullptr}, stream, false);
  });
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync",
             [&](Runtime& r, Lock& lock) { return emu::fill(r, lock, emu::bytes_fill(target, value, bytes), stream); });
}

cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  return api("cudaMemset", [&](Runtime& r, Lock& lock) -> cudaError_t {
    if (const cudaError_t refused = emu::check_synchronous(r); refused != cudaSuccess) return refused;
    // As on a device, the host does not wait for a fill of device memory.
    return emu::fill(r, lock, emu::bytes_fill(target, value, bytes), nullptr);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api("cudaPointerGetAttributes", [&](Runtime& r, Lock&) -> cudaError_t {
    if (attributes == nullptr || pointer == nullptr) return cudaErrorInvalidValue;
    *attributes = cudaPointerAttributes{};
    void* address = const_cast<void*>(pointer);
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    const emu::Place place = r.memory.place(pointer);
    if (place == emu::Place::kPageable || !r.memory.is_valid(pointer, 1)) return cudaSuccess;
    // An address that a graph has for its memory means nothing before a launch has allocated it, and after it is freed
    // (seen on an H200).
    void* of_graph = r.memory.graph_allocation_at(pointer);
    if (of_graph != nullptr && !r.graph_allocations.contains(of_graph)) return cudaSuccess;
    attributes->device = r.memory.device_of(pointer).value_or(0);
    attributes->type = place == emu::Place::kDevice ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = address;
    if (place == emu::Place::kPinned) attributes->hostPointer = address;
    return cudaSuccess;
  });
}
