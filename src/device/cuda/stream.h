// A CUDA stream, owned or borrowed, and the event with which it waits for others.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

class CudaStream : public Stream {
 public:
  explicit CudaStream(Calls& calls) : calls_(calls) {
    CurrentDevice current(calls);
    // Non-blocking: work the user gives to the legacy stream neither waits for ours nor is refused while we capture.
    calls.check(cudaStreamCreateWithFlags(owned_.out(calls.log), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
    stream_ = owned_.get();
  }
  // Borrows a stream of the same device.
  CudaStream(Calls& calls, cudaStream_t borrowed) : calls_(calls), stream_(borrowed), is_borrowed_(true) {
    CurrentDevice current(calls);
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  // The CUDA stream to which work given to this stream goes.
  cudaStream_t get() const { return captured_by_ ? captured_by_->get() : stream_; }
  // Sends work to `stream`, which captures it, from now on; nullptr: to this stream itself, which is always live.
  void capture_by(const CudaStream* stream) { captured_by_ = stream; }

  // Goes on only when everything given to `earlier` so far is done.
  void wait_for(const CudaStream& earlier, Calls& calls) {
    if (earlier.is_borrowed_) earlier.require_no_capture();
    // An event is recorded on its own device; this one's where possible, as `earlier` may be another thread's, too.
    cudaEvent_t event = calls_.device() == earlier.calls_.device() ? event_.get() : earlier.event_.get();
    calls.check(cudaEventRecord(event, earlier.get()), "cudaEventRecord");
    calls.check(cudaStreamWaitEvent(get(), event, cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  // Of its device.
  Calls& calls() const { return calls_; }

  // While capturing: holds work that no other stream has waited for yet.
  bool is_open = false;

 private:
  // An event that is recorded on a stream while it is captured would make every stream that waits for it a part of that
  // capture.
  void require_no_capture() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    calls_.check(cudaStreamIsCapturing(stream_, &status), "cudaStreamIsCapturing");
    if (status == cudaStreamCaptureStatusNone) return;
    throw Error("stream", Where(), "the stream is being captured, and a run cannot become a part of that capture",
                "end the capture first, or give the run a stream that is not capturing");
  }

  Calls& calls_;
  StreamHandle owned_;  // empty if it is borrowed
  EventHandle event_;
  cudaStream_t stream_ = nullptr;
  bool is_borrowed_ = false;
  const CudaStream* captured_by_ = nullptr;
};

inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace graphsink
