// Owning handles of CUDA objects.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "device/cuda/check.h"

namespace graphsink {

// The name of a CUDA function, as a template argument.
template <std::size_t N>
struct CallName {
  char text[N];
  constexpr CallName(const char (&name)[N]) { std::copy_n(name, N, text); }  // NOLINT: implicit
};

// Owns what `Destroy`, called `kCall`, destroys. A failure to destroy is logged.
template <class T, auto Destroy, CallName kCall, auto NameOfCode = cudaGetErrorName>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T object) noexcept : object_(object) {}
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle() {
    if (!object_) return;
    auto code = Destroy(object_);
    if (static_cast<int>(code) != 0) log_failure(kCall.text, NameOfCode(code));
  }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // Where a creating function puts the object. Precondition: empty.
  T* out() { return &object_; }

 private:
  T object_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy, "cudaStreamDestroy">;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy, "cudaEventDestroy">;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy, "cudaGraphDestroy">;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy, "cudaGraphExecDestroy">;

}  // namespace graphsink
