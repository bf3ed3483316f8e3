// Allocation in stream order, pools, and memory of graphs; calls of which only the capture rule is there.
#include <algorithm>

#include "runtime.h"

namespace emu {

GraphMemory::GraphMemory(std::size_t bytes_, int device)
    : pointer(runtime().memory.allocate(bytes_, device, true)), bytes(bytes_) {}

GraphMemory::~GraphMemory() {
  if (pointer != nullptr) runtime().memory.release(pointer, true);
}

namespace {

cudaError_t allocate(Runtime& r, Lock& lock, void** out, std::size_t bytes, cudaStream_t handle) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (out == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (stream->capture != nullptr) {
    AllocWork work{std::make_shared<GraphMemory>(bytes, stream->device)};
    *out = work.memory->pointer;
    return *out == nullptr ? cudaErrorMemoryAllocation : issue(r, lock, handle, std::move(work));
  }
  if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
  *out = bytes == 0 ? nullptr : r.memory.allocate(bytes, stream->device);
  return bytes != 0 && *out == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Runs `body` in stream order.
void append_call(Runtime& r, Lock& lock, CUstream_st& stream, std::function<cudaError_t()> body) {
  auto op = std::make_shared<Op>();
  op->kind = OpKind::kMemory;
  op->body = std::move(body);
  append(r, stream, op);
  r.executor.run_ahead(lock);
}

cudaError_t release(Runtime& r, Lock& lock, void* pointer, cudaStream_t handle) {
  CUstream_st* stream = find_stream(r, handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
  if (const CaptureRef capture = active_capture(*stream)) {
    const bool known = can_free_in(r, *capture->graph, pointer);
    if (known) return issue(r, lock, handle, FreeWork{pointer});
    return explain(cudaErrorInvalidValue,
                   "Virtual address " + address_text(pointer) + " does not refer to an active allocation");
  }
  if (pointer == nullptr) return cudaSuccess;
  if (const auto live = r.graph_allocations.find(pointer); live != r.graph_allocations.end()) {
    append_call(r, lock, *stream, [memory = live->second] { return cudaSuccess; });
    r.graph_allocations.erase(pointer);
    return cudaSuccess;
  }
  if (!r.memory.is_allocation(pointer) || !r.async_freed.insert(pointer).second) return cudaErrorInvalidValue;
  append_call(r, lock, *stream, [&r, pointer] {
    const Lock again(r.mutex);
    r.async_freed.erase(pointer);
    r.memory.release(pointer);
    return cudaSuccess;
  });
  return cudaSuccess;
}

// A call whose capture rule is all there is of it.
cudaError_t rule_only(const char* name) {
  return api(name, [name](Runtime& r, Lock&) -> cudaError_t {
    if (const cudaError_t refused = refuse_unsafe(r); refused != cudaSuccess) return refused;
    not_implemented(name);
  });
}

// The same for a call that names a stream and cannot be captured.
cudaError_t rule_only(const char* name, cudaStream_t handle) {
  return api(name, [name, handle](Runtime& r, Lock&) -> cudaError_t {
    CUstream_st* stream = find_stream(r, handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = check_capture(r, *stream); refused != cudaSuccess) return refused;
    if (const cudaError_t refused = refuse_captured(*stream); refused != cudaSuccess) return refused;
    not_implemented(name);
  });
}

}  // namespace

bool is_device_location(const Runtime& r, const cudaMemLocation& location) {
  return location.type == cudaMemLocationTypeDevice && location.id >= 0 && location.id < r.device_count;
}

bool is_pool(const Runtime& r, const cudaMemPoolProps& properties) {
  const bool has_reserved_bytes = std::any_of(std::begin(properties.reserved), std::end(properties.reserved),
                                              [](unsigned char byte) { return byte != 0; });
  return properties.allocType == cudaMemAllocationTypePinned && is_device_location(r, properties.location) &&
         properties.win32SecurityAttributes == nullptr && !has_reserved_bytes;
}

}  // namespace emu

using emu::api;
using emu::Lock;
using emu::Runtime;

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return api("cudaMallocAsync", [&](Runtime& r, Lock& lock) { return emu::allocate(r, lock, out, bytes, stream); });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return api("cudaFreeAsync", [&](Runtime& r, Lock& lock) { return emu::release(r, lock, pointer, stream); });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return api("cudaDeviceGetDefaultMemPool", [&](Runtime& r, Lock&) -> cudaError_t {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (device < 0 || device >= r.device_count) return cudaErrorInvalidDevice;
    *pool = r.default_pools[static_cast<std::size_t>(device)].get();
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return api("cudaMemPoolCreate", [&](Runtime& r, Lock&) -> cudaError_t {
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    if (pool == nullptr || properties == nullptr || !emu::is_pool(r, *properties)) return cudaErrorInvalidValue;
    *pool = r.pools.emplace_back(std::make_unique<CUmemPoolHandle_st>()).get();
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return api("cudaMemPoolDestroy", emu::When::kAlways, [&](Runtime& r, Lock&) -> cudaError_t {
    return std::erase_if(r.pools, [&](const auto& one) { return one.get() == pool; }) > 0 ? cudaSuccess
                                                                                          : cudaErrorInvalidValue;
  });
}

// Freed memory goes back at once, so there is never anything to trim.
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return api("cudaMemPoolTrimTo", [&](Runtime& r, Lock&) -> cudaError_t {
    if (const cudaError_t refused = emu::refuse_unsafe(r); refused != cudaSuccess) return refused;
    bool known = false;
    for (const auto* pools : {&r.default_pools, &r.pools}) {
      for (const auto& one : *pools) known |= one.get() == pool;
    }
    return known ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocManaged(void**, size_t, unsigned) { return emu::rule_only("cudaMallocManaged"); }
cudaError_t cudaMallocPitch(void**, size_t*, size_t, size_t) { return emu::rule_only("cudaMallocPitch"); }
cudaError_t cudaMallocArray(cudaArray_t*, const cudaChannelFormatDesc*, size_t, size_t, unsigned) {
  return emu::rule_only("cudaMallocArray");
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return emu::rule_only("cudaHostRegister"); }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t, void*, unsigned) {
  return emu::rule_only("cudaStreamAddCallback", stream);
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void*, size_t, unsigned) {
  return emu::rule_only("cudaStreamAttachMemAsync", stream);
}
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}
