// Checked calls, and an allocator that asks the driver for memory seldom.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

inline void require(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           cudaGetErrorString(status));
}

inline void require(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
                           cublasGetStatusString(status));
}

#define CHECK(call) ::require(call, #call, __FILE__, __LINE__)
// Reports a launch that was refused. What goes wrong while a kernel runs shows at a later call that waits.
#define CHECK_LAUNCH() ::require(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

// Gives out device memory from large chunks and never takes it back: everything lives as long as the arena. Addresses
// are multiples of 256 bytes.
class Arena {
 public:
  explicit Arena(std::size_t chunk_bytes = std::size_t{16} << 20) : chunk_bytes_(chunk_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (char* chunk : chunks_) cudaFree(chunk);
  }

  template <class T>
  T* allocate(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 255) / 256 * 256;
    if (bytes > free_bytes_) add_chunk(bytes);
    T* memory = reinterpret_cast<T*>(next_);
    next_ += bytes;
    free_bytes_ -= bytes;
    used_ += bytes;
    return memory;
  }
  float* floats(std::size_t count) { return allocate<float>(count); }
  std::size_t used() const { return used_; }

 private:
  void add_chunk(std::size_t bytes) {
    const std::size_t size = bytes > chunk_bytes_ ? bytes : chunk_bytes_;
    void* chunk = nullptr;
    const cudaError_t status = cudaMalloc(&chunk, size);
    if (status == cudaErrorMemoryAllocation) {
      throw std::runtime_error(
          "no " + std::to_string(size >> 20) +
          " MiB of device memory are left: give a smaller --batch, --context, --width or --layers");
    }
    CHECK(status);
    chunks_.push_back(static_cast<char*>(chunk));
    next_ = chunks_.back();
    free_bytes_ = size;
  }

  std::size_t chunk_bytes_;
  std::vector<char*> chunks_;
  char* next_ = nullptr;
  std::size_t free_bytes_ = 0;
  std::size_t used_ = 0;
};
