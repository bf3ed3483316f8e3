#include "device/cuda/memory.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>

namespace graphsink {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kLargestSlot = std::size_t{4} << 20;
constexpr std::size_t kSmallestSlot = std::size_t{4} << 10;

std::size_t padded(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) return bytes;  // refused by the allocation
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

// "1536.0 MiB".
std::string in_mib(std::size_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

void throw_out_of_memory(Calls& calls, const char* what, std::size_t bytes) {
  (void)cudaGetLastError();
  std::size_t free = 0, total = 0;
  cudaError_t code = cudaMemGetInfo(&free, &total);
  ++calls.counters.api_calls;
  if (code != cudaSuccess) log_failure("cudaMemGetInfo", cudaGetErrorName(code));
  throw Error(to_string(DeviceId{DeviceKind::cuda, calls.device()}), Where(),
              std::string("out of memory: ") + what + " needs " + in_mib(bytes) +
                  (code == cudaSuccess ? ", " + in_mib(free) + " of " + in_mib(total) + " are free" : ""),
              "use smaller shapes or batches, or end other programs on this device");
}

Memory allocate_device(Calls& calls, const CudaStream& stream, std::size_t bytes) {
  RelaxedCapture relaxed(calls);
  void* address = nullptr;
  cudaError_t code = cudaMalloc(&address, padded(bytes));
  if (code == cudaErrorMemoryAllocation) throw_out_of_memory(calls, "cudaMalloc", bytes);
  calls.check(code, "cudaMalloc");
  Memory memory(address, [](void* freed) {
    RelaxedCapture always_allowed;
    cudaError_t failed = cudaFree(freed);
    if (failed != cudaSuccess) log_failure("cudaFree", cudaGetErrorName(failed));
  });
  calls.check(cudaMemsetAsync(address, 0, padded(bytes), stream.get()), "cudaMemsetAsync");
  calls.check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return memory;
}

Memory allocate_pinned(Calls& calls, std::size_t bytes) {
  RelaxedCapture relaxed(calls);
  void* address = nullptr;
  cudaError_t code = cudaHostAlloc(&address, padded(bytes), cudaHostAllocMapped | cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error(to_string(DeviceId{DeviceKind::cuda, calls.device()}), Where(),
                "out of memory: cudaHostAlloc cannot pin " + in_mib(bytes) + " of host memory",
                "use smaller shapes or batches, or end other programs on this machine");
  }
  calls.check(code, "cudaHostAlloc");
  std::memset(address, 0, padded(bytes));
  return Memory(address, [](void* freed) {
    RelaxedCapture always_allowed;
    cudaError_t failed = cudaFreeHost(freed);
    if (failed != cudaSuccess) log_failure("cudaFreeHost", cudaGetErrorName(failed));
  });
}

Staging::~Staging() {
  RelaxedCapture always_allowed;
  for (Slot& slot : slots_) {
    cudaError_t code = slot.copied ? cudaEventSynchronize(slot.copied.get()) : cudaSuccess;
    if (code != cudaSuccess) log_failure("cudaEventSynchronize", cudaGetErrorName(code));
  }
}

Staging::Slot& Staging::next_slot(Calls& calls, std::size_t bytes) {
  Slot& slot = slots_[next_++ % slots_.size()];
  if (!slot.copied) {
    calls.check(cudaEventCreateWithFlags(slot.copied.out(), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  {
    RelaxedCapture relaxed(calls);
    calls.check(cudaEventSynchronize(slot.copied.get()), "cudaEventSynchronize");
  }
  if (slot.bytes < bytes) {
    std::size_t size = std::max(std::bit_ceil(bytes), kSmallestSlot);
    slot.memory = allocate_pinned(calls, size);
    slot.bytes = size;
  }
  return slot;
}

void Staging::record_copied(Calls& calls, const CudaStream& stream, Slot& slot) {
  cudaError_t code = cudaEventRecord(slot.copied.get(), stream.get());
  if (code != cudaSuccess) {
    untracked_.push_back(std::move(slot.memory));
    slot.bytes = 0;
  }
  calls.check(code, "cudaEventRecord");
}

void Staging::upload(Calls& calls, const CudaStream& stream, void* destination, const void* source, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  while (bytes > 0) {
    std::size_t size = std::min(bytes, kLargestSlot);
    Slot& slot = next_slot(calls, size);
    std::memcpy(slot.memory.get(), from, size);
    calls.check(cudaMemcpyAsync(to, slot.memory.get(), size, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    ++calls.counters.copies;
    record_copied(calls, stream, slot);
    to += size;
    from += size;
    bytes -= size;
  }
}

}  // namespace graphsink
