#include "device/cuda/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "graphsink/memory.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

constexpr std::size_t kLargestSlot = std::size_t{4} << 20;
constexpr std::size_t kSmallestSlot = std::size_t{4} << 10;

// Frees a block. Made before it is allocated, because behind that nothing may fail until the block has an owner.
class Release {
 public:
  using Free = cudaError_t (*)(void*);
  // `kind`: where the bytes are counted. `call`: the name of `free`.
  Release(const Calls& calls, std::size_t bytes, std::atomic<std::size_t> HeldBytes::*kind, Free free, const char* call)
      : held_(calls.held),
        map_(calls.memory),
        log_(calls.log),
        bytes_(rounded_block(bytes)),
        kind_(kind),
        free_(free),
        call_(call) {}

  std::size_t bytes() const { return bytes_; }
  void count() const noexcept { (*held_).*kind_ += bytes_; }
  void operator()(void* address) const noexcept {
    RelaxedCapture always_allowed(log_);
    map_->set_gone(address, bytes_);
    const cudaError_t failed = free_(address);
    if (failed != cudaSuccess) log_failure(log_, call_, cudaGetErrorName(failed));
    (*held_).*kind_ -= bytes_;
  }

 private:
  std::shared_ptr<HeldBytes> held_;
  std::shared_ptr<MemoryMap> map_;
  Log log_;
  std::size_t bytes_;
  std::atomic<std::size_t> HeldBytes::*kind_;
  Free free_;
  const char* call_;
};

// If the owner cannot be made, the block is freed.
Memory own(Calls& calls, void* address, Release release) {
  const std::size_t bytes = release.bytes();
  release.count();
  Memory memory(address, std::move(release));
  calls.memory->set(address, bytes, MemoryState::live);
  return memory;
}

}  // namespace

void throw_out_of_memory(Calls& calls, const char* what, std::size_t bytes) {
  (void)cudaGetLastError();
  std::size_t free = 0, total = 0;
  cudaError_t code = cudaMemGetInfo(&free, &total);
  ++calls.counters.api_calls;
  if (code != cudaSuccess) log_failure(calls.log, "cudaMemGetInfo", cudaGetErrorName(code));
  const DeviceId full = cuda(calls.device());
  throw OutOfMemory(to_string(full), full,
                    std::string("out of memory: ") + what + " needs " + bytes_text(bytes) +
                        (code == cudaSuccess ? ", " + bytes_text(free) + " of " + bytes_text(total) + " are free" : ""),
                    "use smaller shapes or batches, or end other programs on this device");
}

Memory allocate_device(Calls& calls, const CudaStream& stream, std::size_t bytes) {
  RelaxedCapture relaxed(calls);
  Release release(calls, bytes, &HeldBytes::device, cudaFree, "cudaFree");
  void* address = nullptr;
  cudaError_t code = cudaMalloc(&address, rounded_block(bytes));
  if (code == cudaErrorMemoryAllocation) throw_out_of_memory(calls, "cudaMalloc", bytes);
  calls.check(code, "cudaMalloc");
  Memory memory = own(calls, address, std::move(release));
  calls.check(cudaMemsetAsync(address, 0, rounded_block(bytes), stream.get()), "cudaMemsetAsync");
  calls.check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return memory;
}

Memory allocate_pinned(Calls& calls, std::size_t bytes) {
  RelaxedCapture relaxed(calls);
  Release release(calls, bytes, &HeldBytes::host, cudaFreeHost, "cudaFreeHost");
  void* address = nullptr;
  cudaError_t code = cudaHostAlloc(&address, rounded_block(bytes), cudaHostAllocMapped | cudaHostAllocPortable);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory(to_string(cuda(calls.device())), cpu(),
                      "out of memory: cudaHostAlloc cannot pin " + bytes_text(bytes) + " of host memory",
                      "use smaller shapes or batches, or end other programs on this machine");
  }
  calls.check(code, "cudaHostAlloc");
  Memory memory = own(calls, address, std::move(release));
  std::memset(address, 0, rounded_block(bytes));
  return memory;
}

Staging::~Staging() {
  RelaxedCapture always_allowed(log_);
  for (Slot& slot : slots_) {
    cudaError_t code = slot.copied ? cudaEventSynchronize(slot.copied.get()) : cudaSuccess;
    if (code != cudaSuccess) log_failure(log_, "cudaEventSynchronize", cudaGetErrorName(code));
  }
}

Staging::Slot& Staging::next_slot(Calls& calls, std::size_t bytes) {
  Slot& slot = slots_[next_++ % slots_.size()];
  if (!slot.copied) {
    calls.check(cudaEventCreateWithFlags(slot.copied.out(calls.log), cudaEventDisableTiming),
                "cudaEventCreateWithFlags");
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

std::size_t Staging::bytes() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.bytes;
  return sum;
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
    calls.counters.host_copied_bytes += size;
    calls.check(cudaMemcpyAsync(to, slot.memory.get(), size, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
    ++calls.counters.copies;
    record_copied(calls, stream, slot);
    to += size;
    from += size;
    bytes -= size;
  }
}

}  // namespace graphsink
