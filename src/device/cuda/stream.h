// A non-blocking CUDA stream and the event with which it waits for others.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

class CudaStream : public Stream {
 public:
  explicit CudaStream(Calls& calls) : calls_(calls) {
    CurrentDevice current(calls);
    // Non-blocking: work the user gives to the legacy stream neither waits for ours nor is refused while we record.
    calls.check(cudaStreamCreateWithFlags(stream_.out(calls.log), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  // Where work given to this stream goes.
  cudaStream_t get() const { return recorded_by_ ? recorded_by_->get() : stream_.get(); }
  // From here on work goes to `stream`, which records it; nullptr: to this one, which is always live.
  void record_by(const CudaStream* stream) { recorded_by_ = stream; }

  // Goes on only when everything given to `earlier` so far is done.
  void wait_for(const CudaStream& earlier, Calls& calls) {
    // An event is recorded on its own device; this one's where possible, as `earlier` may be another thread's, too.
    cudaEvent_t event = calls_.device() == earlier.calls_.device() ? event_.get() : earlier.event_.get();
    calls.check(cudaEventRecord(event, earlier.get()), "cudaEventRecord");
    calls.check(cudaStreamWaitEvent(get(), event, cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  // Of its device.
  Calls& calls() const { return calls_; }

  // While recording: holds work that no other stream has waited for yet.
  bool is_open = false;

 private:
  Calls& calls_;
  StreamHandle stream_;
  EventHandle event_;
  const CudaStream* recorded_by_ = nullptr;
};

class CudaMark : public Mark {
 public:
  explicit CudaMark(Calls& calls) {
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  cudaEvent_t get() const { return event_.get(); }

 private:
  EventHandle event_;
};

inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace graphsink
