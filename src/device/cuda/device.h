// Implements the device boundary for CUDA.
#pragma once

#include <atomic>
#include <compare>
#include <memory>
#include <set>

#include "device/cuda/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/cuda/stream_capture.h"

namespace graphsink {

struct Matmuls;
class Nvrtc;
class RunTimeKernels;

// Use a device from one thread at a time. Memory, streams and captured graphs that it made may be destroyed after the
// device, but not used.
class CudaDevice : public Device {
 public:
  // `beside`, `flush_denormals`: see open_device().
  CudaDevice(int index, const Log& log, std::span<Device* const> beside, bool flush_denormals);

  Memory allocate(std::size_t bytes) override;
  Memory allocate_host(std::size_t bytes) override;
  std::unique_ptr<Arena> reserve() override;
  std::unique_ptr<FeedMemory> make_feed_memory() override;
  std::size_t staging_bytes() const override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Stream> borrow_stream(void* handle) override;
  void wait(Stream& stream) override;
  bool is_done(Stream& stream) override;
  bool wait_otherwise(Stream& stream) noexcept override;
  void make_wait(Stream& later, Stream& earlier) override;
  void begin(Stream& stream, const LaunchRing& ring) override;
  void call(Stream& stream, const BoundNode& node) override;
  void call_now(const BoundNode& node) override;
  void copy(Stream& stream, void* destination, const void* source, std::size_t bytes) override;
  void upload(Stream& stream, void* destination, const void* source, std::size_t bytes) override;
  void control(Streams streams, TaskKind kind, const void* decision, std::size_t count, const Bodies& bodies) override;
  void begin_capture(Streams streams) override;
  std::unique_ptr<CapturedGraph> end_capture(Streams streams, std::unique_ptr<CapturedGraph> spare) override;
  bool is_captured_by_others(Stream& callers) override;
  void enter_capture(Streams streams, Stream& callers, std::shared_ptr<void> owner) override;
  void leave_capture(Streams streams) noexcept override;
  void launch(Stream& stream, CapturedGraph& graph, std::int64_t steps = 1) override;
  void require_usable(const void* memory, std::size_t bytes) override;
  std::optional<MemoryRoom> room() override;
  MemoryState memory_state(std::uintptr_t address) const override { return calls_->memory->find(address); }
  Counters counters() const override;

  // Only for headers inside the library.
  Calls& calls() { return *calls_; }
  const CudaStream& setup_stream() const { return setup_stream_; }
  std::shared_ptr<Matmuls> matmuls;                  // made by the first prepare_matmul()
  std::shared_ptr<RunTimeKernels> run_time_kernels;  // made by the first load_kernel()
  const Nvrtc& compiler() const { return *compiler_; }

 private:
  // The argument of a host function. The elements of a set never move, so each pair keeps one address for the device's
  // lifetime.
  struct HostCall {
    CudaDevice* device;
    const BoundNode* node;
    auto operator<=>(const HostCall&) const = default;
  };
  static void run_host_call(void* data) noexcept;

  // Makes the device current for the calling thread. Throws Error if the device is lost.
  CurrentDevice enter();
  // Throws CaptureFailed while capturing. `what` names the call that cannot be captured.
  void require_live(const char* what) const;
  void enqueue_host_call(CudaStream& stream, const BoundNode& node);
  void run_body(CudaStream& stream, const BoundNode& node, const CudaLaunches& how);
  // `call` is null if it is not known.
  [[noreturn]] void fail_body(cudaError_t code, const char* call, const BoundNode& node);

  const bool flush_denormals_;  // whether CPU bodies treat denormals as zeros
  std::shared_ptr<Calls> calls_;
  const std::shared_ptr<const Nvrtc> compiler_;
  CudaStream setup_stream_;  // for setting up memory; never captured
  Staging staging_;
  Memory decision_;  // pinned host memory
  std::set<HostCall> host_calls_;
  std::atomic<int> running_host_calls_ = 0;
  std::shared_ptr<StreamCapture> capture_;  // shared by all devices of the program
};

}  // namespace graphsink
