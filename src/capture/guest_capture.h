// Captures what a function of somebody else enqueues on a stream of somebody else.
#pragma once

#include <memory>
#include <string>

#include "base/function_ref.h"
#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

// The guest's stream is still capturing after a capture that failed: work that it is given does not run.
class StreamLost : public Error {
 public:
  using Error::Error;
};

// For the streams of one device. Used by one thread at a time.
//
// A capture begins on a stream of its own, the origin, which the guest's stream joins. So the guest cannot end the
// capture by mistake, libraries whose handles are bound to the guest's stream are captured too, and the guest's stream
// is live again however the capture ends. With `watch_legacy_stream`, the origin is a blocking stream: CUDA refuses
// work on the legacy stream while one is capturing.
class GuestCapture {
 public:
  GuestCapture(std::shared_ptr<Calls> calls, bool watch_legacy_stream);
  ~GuestCapture();
  GuestCapture(const GuestCapture&) = delete;
  GuestCapture& operator=(const GuestCapture&) = delete;

  // Calls enqueue(stream), or enqueue(a stream of its own) for the legacy stream. Nothing that it enqueues runs. The
  // result may have no nodes. Throws CaptureFailed, naming the first call that CUDA refused as far as it tells, if the
  // work cannot be captured; StreamLost if the stream cannot be made live again; Error if a call of the capture itself
  // fails, and if the device is lost.
  GraphHandle capture(cudaStream_t stream, FunctionRef<void(cudaStream_t)> enqueue);

  // A live stream of the device, for uploads.
  cudaStream_t origin() const { return origin_.get(); }

 private:
  struct Failed;
  void open();
  // Makes `later` wait for what `earlier` was given; a stream that waits for a capturing one joins its capture.
  cudaError_t link(cudaStream_t earlier, cudaStream_t later) noexcept;
  // Ends the capture, whatever became of it. Afterwards `stream` is live.
  GraphHandle end(cudaStream_t stream, Failed& failed);

  std::shared_ptr<Calls> calls_;
  bool watches_legacy_stream_;
  StreamHandle origin_;
  EventHandle event_;
};

}  // namespace graphsink
