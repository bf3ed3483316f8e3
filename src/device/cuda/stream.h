// A CUDA stream, owned or borrowed, and the event with which it waits for others.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

class CudaStream : public Stream {
 public:
  explicit CudaStream(Calls& calls) : calls_(calls) {
    CurrentDevice current(calls);
    // A non-blocking stream does not wait for work that the user gives to the legacy stream. And the user may use the
    // legacy stream while this stream is being captured.
    calls.check(cudaStreamCreateWithFlags(owned_.out(calls.log), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
    stream_ = owned_.get();
  }
  // Borrows a stream of the same device. The caller keeps it alive.
  CudaStream(Calls& calls, cudaStream_t borrowed) : calls_(calls), stream_(borrowed), is_borrowed_(true) {
    CurrentDevice current(calls);
    calls.check(cudaEventCreateWithFlags(event_.out(calls.log), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  // Returns the CUDA stream that receives the work given to this stream.
  cudaStream_t get() const { return captured_by_ ? captured_by_->get() : stream_; }
  // From now on, sends work to `stream`, which captures it. With nullptr, sends work to this stream itself again, which
  // is never captured.
  void capture_by(const CudaStream* stream) { captured_by_ = stream; }

  // Later work on this stream waits until everything given to `earlier` so far is done.
  void wait_for(const CudaStream& earlier, Calls& calls) {
    if (earlier.is_borrowed_) earlier.require_no_capture();
    // An event can only be recorded on its own device. If both streams are on one device, this stream's event is used,
    // because another thread may also be using `earlier`.
    cudaEvent_t event = calls_.device() == earlier.calls_.device() ? event_.get() : earlier.event_.get();
    calls.check(cudaEventRecord(event, earlier.get()), "cudaEventRecord");
    calls.check(cudaStreamWaitEvent(get(), event, cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  // The calls of the stream's device.
  Calls& calls() const { return calls_; }

  // While capturing: holds work that no other stream has waited for yet.
  bool is_open = false;
  // While capturing: has waited for another stream since it was given work.
  bool has_waited = false;

 private:
  // Recording an event on a stream that is being captured makes every stream that waits for this event a part of that
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
