// Owning handles of CUDA objects.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "device/cuda/check.h"

namespace graphsink {

// The name of a CUDA function, as a template argument.
template <std::size_t N>
struct CallName {
  char text[N];
  constexpr CallName(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT: implicit
};

// Owns a CUDA object, which `Destroy` destroys; `Destroy` may take the log as a second argument. `kCall` is the name of
// the destroying function: a failure is logged under this name.
template <class T, auto Destroy, CallName kCall, auto NameOfCode = cudaGetErrorName>
class Handle {
 public:
  Handle() = default;
  Handle(T object, const Log& log) noexcept : object_(object), log_(log) {}
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)), log_(std::move(other.log_)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(log_, other.log_);
    return *this;
  }
  ~Handle() {
    if (!object_) return;
    auto code = destroy();
    if (static_cast<int>(code) != 0) log_failure(log_, kCall.text, NameOfCode(code));
  }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // Returns the address at which a creating function stores the object. Precondition: the handle is empty.
  T* out(const Log& log = {}) {
    log_ = log;
    return &object_;
  }

 private:
  auto destroy() {
    if constexpr (std::is_invocable_v<decltype(Destroy), T, const Log&>) {
      return Destroy(object_, log_);
    } else {
      return Destroy(object_);
    }
  }

  T object_ = nullptr;
  Log log_;
};

// A capture in progress on this thread, or in global mode on any thread, forbids these two calls and is broken by them.
// The other functions that handles call are always allowed.
inline cudaError_t destroy_exec(cudaGraphExec_t exec, const Log& log) {
  const RelaxedCapture always_allowed(log);
  return cudaGraphExecDestroy(exec);
}
inline cudaError_t free_memory(void* memory, const Log& log) {
  const RelaxedCapture always_allowed(log);
  return cudaFree(memory);
}

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy, "cudaStreamDestroy">;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy, "cudaEventDestroy">;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy, "cudaGraphDestroy">;
using GraphExecHandle = Handle<cudaGraphExec_t, destroy_exec, "cudaGraphExecDestroy">;
using MemoryHandle = Handle<void*, free_memory, "cudaFree">;

}  // namespace graphsink
