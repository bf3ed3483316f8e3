// Checks and counts the CUDA calls made for one device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "graphsink/cuda.h"

namespace graphsink {

// What check_cuda() throws; the device turns it into the error the caller of the boundary sees.
class CudaFailure : public Error {
 public:
  CudaFailure(cudaError_t code, const char* call, const BoundNode& node);
  cudaError_t code() const { return code_; }
  const char* call() const { return call_; }

 private:
  cudaError_t code_;
  const char* call_;  // static storage
};

// One per device, shared with the memory that may outlive it. Used by one thread at a time.
class Calls {
 public:
  // `beside`: of another device of the same program; what is captured is captured together, and lost together.
  Calls(int device, bool is_only_device, const Log& log, const Calls* beside = nullptr)
      : log(log),
        memory(beside ? beside->memory : std::make_shared<MemoryMap>()),
        fate_(beside ? beside->fate_ : std::make_shared<Fate>()),
        device_(device),
        is_only_device_(is_only_device) {}

  // Counts one call and throws if it failed: CaptureFailed while capturing, else Error, naming `node` if given. After
  // an error that ends the context, the device is lost.
  void check(cudaError_t code, const char* call, const BoundNode* node = nullptr) {
    ++counters.api_calls;
    if (code != cudaSuccess) fail(code, call, node);
  }
  // As check() of a failed call that was counted already.
  [[noreturn]] void fail(cudaError_t code, const char* call, const BoundNode* node = nullptr);

  // Throws if the device is lost, saying what happened first.
  void require_device() const {
    if (is_lost()) throw_lost();
  }
  bool is_lost() const { return !fate_->lost.empty(); }
  bool is_capturing() const { return fate_->is_capturing; }
  void set_capturing(bool is_capturing) { fate_->is_capturing = is_capturing; }

  int device() const { return device_; }
  bool is_only_device() const { return is_only_device_; }

  const Log log;
  Counters counters;
  const std::shared_ptr<HeldBytes> held = std::make_shared<HeldBytes>();
  const std::shared_ptr<MemoryMap> memory;  // of all devices of the program
  std::vector<int> peers;                   // devices that can reach its memory, and it theirs

 private:
  struct Fate {
    bool is_capturing = false;
    std::string lost;  // why
  };
  [[noreturn]] void throw_lost() const;

  std::shared_ptr<Fate> fate_;
  int device_;
  bool is_only_device_;
};

// Makes a device the thread's current one, and restores the previous one at the end. Makes no call if the machine has
// one device only.
class CurrentDevice {
 public:
  explicit CurrentDevice(Calls& calls);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  Calls& calls_;
  int before_ = -1;  // -1: nothing to restore
};

// While it lives, allocations and waits of this thread are not refused because of a capture in progress, and do not
// break a capture that another thread began in global mode.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(Calls& calls);             // throws as Calls::check()
  explicit RelaxedCapture(const Log& log) noexcept;  // for destructors: logs
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  Log log_;
  Calls* calls_ = nullptr;  // counts the calls made here
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool is_changed_ = false;
};

// "cudaMalloc returned cudaErrorMemoryAllocation (out of memory)".
std::string describe(cudaError_t code, const char* call);

// For a capture that a call broke.
inline constexpr const char* kCaptureRemedy =
    "bodies may only enqueue: allocate, wait and load in prepare(), or declare the op with .traits = {.capturable = "
    "false}; let no other thread synchronise the device meanwhile";

// After these the context is gone, and the process must end.
bool is_sticky(cudaError_t code);

// For failures that cannot be thrown, such as those of destructors. The thread's last error is cleared.
void log_failure(const Log& log, const char* call, const char* code) noexcept;

}  // namespace graphsink
