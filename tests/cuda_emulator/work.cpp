// What the operations do when the device runs them.
#include <cstdio>
#include <cstring>
#include <mutex>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "profiler.h"
#include "runtime.h"
#include "simt_engine.h"

namespace emu {
namespace {

cudaError_t fail_device(const std::string& why, cudaError_t code) {
  std::fprintf(stderr, "cuda emulator: %s\n", why.c_str());
  const Lock lock(runtime().mutex);
  runtime().last_failure = why;
  return code;
}

std::uint64_t next_kernel_seed() {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const std::uint64_t seed = r.executor.seed();
  if (seed < 2) return seed;
  return (seed * 0x9E3779B97F4A7C15u + r.executor.executed.kernels * 0x94D049BB133111EBu) | 2;
}

// The arithmetic of a GPU does not depend on the settings of host threads: it computes with denormals, and rounds to
// nearest.
class DeviceArithmetic {
 public:
  DeviceArithmetic() { set(kAtFirst); }
  ~DeviceArithmetic() { set(outer_); }
  DeviceArithmetic(const DeviceArithmetic&) = delete;
  DeviceArithmetic& operator=(const DeviceArithmetic&) = delete;

 private:
  // The control register with which every process begins.
#if defined(__x86_64__)
  static constexpr unsigned kAtFirst = 0x1f80;
  static unsigned get() { return _mm_getcsr(); }
  static void set(unsigned control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  static constexpr unsigned long kAtFirst = 0;
  static unsigned long get() {
    unsigned long control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(unsigned long control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#else
  static constexpr unsigned kAtFirst = 0;
  static unsigned get() { return kAtFirst; }
  static void set(unsigned) {}
#endif

  decltype(get()) outer_ = get();
};

cudaError_t run(const KernelWork& kernel) {
  const char* refused = nullptr;
  {
    Runtime& r = runtime();
    const Lock lock(r.mutex);
    refused = refuse_arguments(r, kernel);
  }
  if (refused != nullptr) return fail_device(refused, cudaErrorIllegalAddress);
  [[maybe_unused]] const DeviceArithmetic arithmetic;
  if (kernel.native) {
    const cudaError_t code = kernel.native();
    return code == cudaSuccess ? code : fail_device("a library kernel uses memory that is not allocated", code);
  }
  // Kernels may write to their parameters, so each run has its own.
  std::vector<std::vector<std::byte>> values = kernel.arguments;
  std::vector<void*> pointers;
  for (auto& value : values) pointers.push_back(value.data());
  pointers.push_back(nullptr);
  const auto cluster = kernel.attributes.find(cudaLaunchAttributeClusterDimension);
  const Grid grid{kernel.function,    kernel.invoke,
                  pointers.data(),    kernel.grid,
                  kernel.block,       kernel.shared_bytes,
                  next_kernel_seed(), cluster == kernel.attributes.end() ? dim3(0, 0, 0) : cluster_of(cluster->second),
                  kernel.programmatic};
  const char* failure = run_grid(grid);
  return failure == nullptr ? cudaSuccess : fail_device(failure, cudaErrorLaunchFailure);
}

cudaError_t run(const CopyWork& copy) {
  Memory& memory = runtime().memory;
  const bool is_staged = copy.staged != nullptr;
  const void* source = is_staged ? copy.staged->data() : copy.source;
  const std::size_t source_pitch = is_staged ? copy.bytes : copy.source_pitch;
  const std::size_t source_extent = is_staged ? copy.staged->size() : copy.source_extent();
  if (!memory.is_valid(copy.target, copy.target_extent()) || !memory.is_valid(source, source_extent)) {
    return fail_device("a copy touches memory that is not allocated any more", cudaErrorIllegalAddress);
  }
  if (!memory.is_reachable(copy.target, copy.device) || !memory.is_reachable(source, copy.device)) {
    return fail_device("a copy touches memory that its device has no access to", cudaErrorIllegalAddress);
  }
  for (std::size_t row = 0; row < copy.rows; ++row) {
    std::memmove(static_cast<std::byte*>(copy.target) + row * copy.target_pitch,
                 static_cast<const std::byte*>(source) + row * source_pitch, copy.bytes);
  }
  return cudaSuccess;
}

std::size_t fill_extent(const cudaMemsetParamsV2& fill) {
  const std::size_t row = fill.width * fill.elementSize;
  return fill.height <= 1 ? row : fill.pitch * (fill.height - 1) + row;
}

cudaError_t run(const FillWork& work) {
  const cudaMemsetParamsV2& fill = work.params;
  if (!runtime().memory.is_valid(fill.dst, fill_extent(fill))) {
    return fail_device("a fill touches memory that is not allocated any more", cudaErrorIllegalAddress);
  }
  for (std::size_t y = 0; y < fill.height; ++y) {
    char* row = static_cast<char*>(fill.dst) + y * fill.pitch;
    if (fill.elementSize == 1) {
      std::memset(row, static_cast<int>(fill.value), fill.width);
      continue;
    }
    for (std::size_t x = 0; x < fill.width; ++x) {
      std::memcpy(row + x * fill.elementSize, &fill.value, fill.elementSize);
    }
  }
  return cudaSuccess;
}

cudaError_t run(const HostWork& work) {
  work.function(work.data);
  return cudaSuccess;
}

// Each time the memory comes back with anything in it.
cudaError_t run(const AllocWork& work) {
  std::memset(work.memory->pointer, 0xFF, work.memory->bytes);
  return cudaSuccess;
}

template <class T>
cudaError_t run(const T&) {
  return cudaSuccess;
}

OpKind kind_of(const Work& work) {
  if (std::holds_alternative<KernelWork>(work)) return OpKind::kKernel;
  if (std::holds_alternative<CopyWork>(work)) return OpKind::kCopy;
  if (std::holds_alternative<FillWork>(work)) return OpKind::kFill;
  if (std::holds_alternative<HostWork>(work)) return OpKind::kHost;
  if (std::holds_alternative<AllocWork>(work)) return OpKind::kMemory;
  return OpKind::kMarker;
}

// All addresses are in one space, so that a copy finds out where its memory is. The direction it names must only not
// say "device" of pageable memory, which the device cannot reach. Pinned memory is both the host's and the device's,
// and device memory may be called the host's where the other side is the device's.
bool fits_kind(cudaMemcpyKind kind, Place target, Place source) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return target != Place::kDevice && source != Place::kDevice;
    case cudaMemcpyHostToDevice:
      return target != Place::kPageable;
    case cudaMemcpyDeviceToHost:
      return source != Place::kPageable;
    case cudaMemcpyDeviceToDevice:
      return target != Place::kPageable && source != Place::kPageable;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

}  // namespace

OpRef make_op(WorkRef work, std::uint64_t node, std::uint32_t graph) {
  auto op = std::make_shared<Op>();
  op->kind = kind_of(*work);
  op->record = record_of(work, node, graph);
  op->body = [work] { return std::visit([](const auto& one) { return run(one); }, *work); };
  return op;
}

cudaGraphNodeType node_type(const Work& work) {
  if (std::holds_alternative<KernelWork>(work)) return cudaGraphNodeTypeKernel;
  if (std::holds_alternative<CopyWork>(work)) return cudaGraphNodeTypeMemcpy;
  if (std::holds_alternative<FillWork>(work)) return cudaGraphNodeTypeMemset;
  if (std::holds_alternative<HostWork>(work)) return cudaGraphNodeTypeHost;
  if (std::holds_alternative<ChildWork>(work)) return cudaGraphNodeTypeGraph;
  if (std::holds_alternative<ConditionalWork>(work)) return cudaGraphNodeTypeConditional;
  if (std::holds_alternative<AllocWork>(work)) return cudaGraphNodeTypeMemAlloc;
  if (std::holds_alternative<FreeWork>(work)) return cudaGraphNodeTypeMemFree;
  if (const auto* event = std::get_if<EventWork>(&work)) {
    return event->records ? cudaGraphNodeTypeEventRecord : cudaGraphNodeTypeWaitEvent;
  }
  return cudaGraphNodeTypeEmpty;
}

cudaError_t check_copy(Runtime& r, const CopyWork& copy) {
  if (copy.bytes == 0 || copy.rows == 0) return cudaSuccess;
  if (copy.kind < cudaMemcpyHostToHost || copy.kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (copy.rows > 1 && (copy.target_pitch < copy.bytes || copy.source_pitch < copy.bytes))
    return cudaErrorInvalidPitchValue;
  if (!r.memory.is_valid(copy.target, copy.target_extent()) || !r.memory.is_valid(copy.source, copy.source_extent())) {
    return cudaErrorInvalidValue;
  }
  const bool fits = fits_kind(copy.kind, r.memory.place(copy.target), r.memory.place(copy.source));
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t check_fill(Runtime& r, const cudaMemsetParamsV2& fill) {
  if (fill.elementSize != 1 && fill.elementSize != 2 && fill.elementSize != 4) return cudaErrorInvalidValue;
  if (fill.height > 1 && fill.pitch < fill.width * fill.elementSize) return cudaErrorInvalidValue;
  if (fill.width == 0 || fill.height == 0) return cudaSuccess;
  if (reinterpret_cast<std::uintptr_t>(fill.dst) % fill.elementSize != 0) return cudaErrorInvalidValue;
  if (r.memory.place(fill.dst) == Place::kPageable) return cudaErrorInvalidValue;
  return r.memory.is_valid(fill.dst, fill_extent(fill)) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace emu

void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value) {
  // Threads that do set it at once are told so below, not by thread sanitizer.
  static std::mutex mutex;
  emu::Launch* launch = emu::runtime().executor.running_launch();
  if (launch == nullptr) emu::fail_kernel("cudaGraphSetConditional outside a graph launch");
  const char* wrong = nullptr;
  {
    const std::lock_guard guard(mutex);
    const auto found = launch->values.find(handle);
    if (found == launch->values.end()) {
      wrong = "cudaGraphSetConditional with a handle of another graph";
    } else if (launch->setters.emplace(handle, emu::global_thread_id()).first->second != emu::global_thread_id()) {
      wrong = "cudaGraphSetConditional of one handle by two threads of a kernel";
    } else {
      found->second = value;
    }
  }
  if (wrong != nullptr) emu::fail_kernel(wrong);
}
