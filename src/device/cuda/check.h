// Checks and counts the CUDA calls made for one device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "graphsink/cuda.h"
#include "ir/bound_node.h"

namespace graphsink {

// check_cuda() throws this. The device catches it and throws the error that its caller sees.
class CudaFailure : public Error {
 public:
  CudaFailure(cudaError_t code, const char* call, const BoundNode& node);
  cudaError_t code() const { return code_; }
  const char* call() const { return call_; }

 private:
  cudaError_t code_;
  const char* call_;  // points to static storage
};

// Counts and checks the CUDA calls of one device. There is one object per device. It is shared with memory, which may
// outlive the device. Use it from one thread at a time.
class Calls {
 public:
  // `beside` belongs to another device of the same program, if there is one. The devices of a program are captured
  // together, and if one of them is lost, all are.
  Calls(int device, bool is_only_device, const Log& log, const Calls* beside = nullptr)
      : log(log),
        memory(beside ? beside->memory : std::make_shared<MemoryMap>()),
        fate_(beside ? beside->fate_ : std::make_shared<Fate>()),
        device_(device),
        is_only_device_(is_only_device) {}

  // Counts one call, and throws if it failed: CaptureFailed while capturing, Error otherwise. The error names the op of
  // `node`, if given. After an error that destroys the context, the device is lost.
  void check(cudaError_t code, const char* call, const BoundNode* node = nullptr) {
    ++counters.api_calls;
    if (code != cudaSuccess) fail(code, call, node);
  }
  // Handles a failed call that was already counted, in the same way as check().
  [[noreturn]] void fail(cudaError_t code, const char* call, const BoundNode* node = nullptr);

  // Throws Error if the device is lost; the message names the first failure.
  void require_device() const {
    if (is_lost()) throw_lost();
  }
  bool is_lost() const { return !fate_->lost.empty(); }
  const std::string& first_failure() const { return fate_->lost; }  // that lost the device
  bool is_capturing() const { return fate_->is_capturing; }
  void set_capturing(bool is_capturing) { fate_->is_capturing = is_capturing; }

  int device() const { return device_; }
  bool is_only_device() const { return is_only_device_; }

  const Log log;
  Counters counters;
  const std::shared_ptr<HeldBytes> held = std::make_shared<HeldBytes>();
  const std::shared_ptr<MemoryMap> memory;  // shared by all devices of the program
  std::vector<int> peers;  // devices with peer access to this device's memory, and this device to theirs

 private:
  struct Fate {
    bool is_capturing = false;
    std::string lost;  // the first failure; empty as long as the device works
  };
  [[noreturn]] void throw_lost() const;

  std::shared_ptr<Fate> fate_;
  int device_;
  bool is_only_device_;
};

// Makes a device the current one of the thread, and restores the previous one in the destructor. Makes no CUDA call if
// the machine has only one device.
class CurrentDevice {
 public:
  explicit CurrentDevice(Calls& calls);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  Calls& calls_;
  int before_ = -1;  // -1 if there is nothing to restore
};

// While this object lives, a capture in progress does not forbid this thread to allocate memory or to wait. Nor do
// these calls break a capture that another thread began in global mode.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(Calls& calls);             // throws like Calls::check()
  explicit RelaxedCapture(const Log& log) noexcept;  // for destructors: logs a failure instead
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  Log log_;
  Calls* calls_ = nullptr;  // counts the call of the destructor; may be null
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool is_changed_ = false;
};

// Returns, for example, "cudaMalloc returned cudaErrorMemoryAllocation (out of memory)".
std::string describe(cudaError_t code, const char* call);

// The remedy in the error message when a call broke a capture.
inline constexpr const char* kCaptureRemedy =
    "bodies may only enqueue: allocate, wait and load in prepare(), or declare the op with .traits = {.capturable = "
    "false}; let no other thread synchronise the device meanwhile";

// Tells whether this error destroys the context. The process must then end.
bool is_sticky(cudaError_t code);

// Remedy for a failed call, to tell the user, and the kind of the failure.
const char* remedy_for(cudaError_t code);
ErrorCode error_code_of(cudaError_t code);

// Logs a failure that cannot be thrown, such as one in a destructor. Clears the last error of the thread.
void log_failure(const Log& log, const char* call, const char* code) noexcept;

}  // namespace graphsink
