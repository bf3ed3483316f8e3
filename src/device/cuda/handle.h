// Owning handles of CUDA objects.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

namespace graphsink {

// Owns what `Destroy` destroys. A failure to destroy is left to the next call, which the same cause makes fail.
template <class T, auto Destroy>
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
    if (object_ && static_cast<int>(Destroy(object_)) != 0) (void)cudaGetLastError();
  }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // Where a creating function puts the object. Precondition: empty.
  T* out() { return &object_; }

 private:
  T object_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

// While it lives, this thread's allocations and waits neither are refused by a capture in progress nor break one that
// another thread began in global mode.
class RelaxedCapture {
 public:
  // Adds the calls it makes to `calls`, unless null.
  explicit RelaxedCapture(std::uint64_t* calls = nullptr) noexcept {
    is_changed_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
    if (calls) *calls += 2;
  }
  ~RelaxedCapture() {
    if (is_changed_) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool is_changed_ = false;
};

}  // namespace graphsink
