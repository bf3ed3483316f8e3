// State that a SinkCache keeps for one key.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/captured_graph.h"
#include "device/cuda/guest_capture.h"
#include "device/cuda/target.h"
#include "exec/capture/capture_slot.h"
#include "graphsink/key.h"

namespace graphsink {

// Objects that captures on one device need.
struct GuestDevice {
  std::shared_ptr<Calls> calls;
  GuestCapture capture;

  GuestDevice(int device, const Log& log) : calls(open_calls(device, log)), capture(calls) {}
};

// An address in device memory that a captured node was given.
struct GivenAddress {
  std::uintptr_t address = 0;
  std::uint64_t registration = 0;  // 0: CUDA alone knows it
  std::string place;               // "kernel add(int*, int), parameter 0"
};

// State that is kept for one key on one stream. An executable graph runs on one stream at a time.
struct Sunk {
  static constexpr int kFirstAttemptAfter = 8, kMostCallsBetweenAttempts = 1 << 20;

  Sunk(Key k, GuestDevice& d) : key(std::move(k)), device(d) {}

  Key key;
  GuestDevice& device;
  CaptureSlot slot;                   // one step
  std::unique_ptr<CaptureSlot> loop;  // several steps; null until a call asks for them
  EventHandle launched;               // recorded after each launch; null before the first capture
  int warm_runs = 0;
  // A library may allocate in its first calls and then no more, so a refused key is tried again, ever more rarely.
  int calls_until_attempt = 0;
  int calls_between_attempts = kFirstAttemptAfter;
  int in_use = 0;  // calls of run() that are under way
  int launches_since_check = 0;
  std::vector<GivenAddress> addresses;  // where launches are checked

  // With what the cache itself keeps: this, its copy of the key, an event.
  std::size_t bytes() const { return slot.bytes() + (loop ? loop->bytes() : 0) + 2 * sizeof(Sunk); }
  CudaCapturedGraph& graph() { return static_cast<CudaCapturedGraph&>(slot.graph()); }

  // Whether this call may capture. Precondition: not captured.
  bool is_due() {
    if (!slot.is_refused()) return true;
    if (slot.is_refused_for_good() || --calls_until_attempt > 0) return false;
    slot.allow_attempt();
    return true;
  }
  // After an attempt that failed.
  void plan_next_attempt() {
    if (!slot.is_refused()) return;
    calls_until_attempt = calls_between_attempts;
    calls_between_attempts = std::min(2 * calls_between_attempts, kMostCallsBetweenAttempts);
  }

  bool is_busy() const noexcept {
    if (in_use > 0) return true;
    if (!launched) return false;
    const RelaxedCapture always_allowed(device.calls->log);
    const cudaError_t code = cudaEventQuery(launched.get());
    if (code != cudaSuccess && cudaPeekAtLastError() == code) (void)cudaGetLastError();
    return code == cudaErrorNotReady;
  }
};

// Calls `make`, and turns an Error of it into CaptureFailed, unless nothing can be run after it: StreamLost, or a lost
// device.
template <class Make>
std::unique_ptr<CapturedGraph> as_capture(const Sunk& sunk, const Make& make) {
  try {
    return make();
  } catch (const CaptureFailed&) {
    throw;
  } catch (const StreamLost&) {
    throw;
  } catch (const Error& e) {
    if (sunk.device.calls->is_lost()) throw;
    throw CaptureFailed(e.op(), e.where(), e.problem(), e.remedy(), e.code());
  }
}

}  // namespace graphsink
