// Captures what a function of somebody else enqueues on a stream of somebody else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

// The guest's stream is still capturing after a capture that failed: work that it is given does not run.
class StreamLost : public Error {
 public:
  using Error::Error;
};

// For the streams of one device, which is the current one during all calls. Used by one thread at a time.
//
// A capture begins on a stream of its own, the origin, which the guest's stream joins. So the guest cannot end the
// capture by mistake, libraries whose handles are bound to the guest's stream are captured too, and the guest's stream
// is live again however the capture ends.
//
// CUDA refuses work on the legacy stream to all threads of the process while a blocking stream is capturing, and then
// breaks the capture. The origin for such a capture is a blocking stream, else it is not. The guest's own stream may be
// one, too.
class GuestCapture {
 public:
  enum class LegacyStream : std::uint8_t { free, watched };

  explicit GuestCapture(std::shared_ptr<Calls> calls);
  ~GuestCapture();
  GuestCapture(const GuestCapture&) = delete;
  GuestCapture& operator=(const GuestCapture&) = delete;

  // Calls enqueue(stream), or enqueue(a stream of its own) for the legacy stream. Nothing that it enqueues runs. The
  // result may have no nodes. Throws CaptureFailed, naming the first call that CUDA refused as far as it tells, if the
  // work cannot be captured; StreamLost if the stream cannot be made live again; Error if a call of the capture itself
  // fails, and if the device is lost.
  GraphHandle capture(cudaStream_t stream, LegacyStream legacy, FunctionRef<void(cudaStream_t)> enqueue);

  // A live stream of the device, for uploads.
  cudaStream_t origin() { return open(LegacyStream::free).get(); }

 private:
  struct Failed;
  StreamHandle& open(LegacyStream legacy);
  // Makes `later` wait for what `earlier` was given; a stream that waits for a capturing one joins its capture.
  cudaError_t link(cudaStream_t earlier, cudaStream_t later) noexcept;
  // Ends the capture, whatever became of it. Afterwards `stream` is live.
  GraphHandle end(StreamHandle& origin, cudaStream_t stream, Failed& failed);

  std::shared_ptr<Calls> calls_;
  std::array<StreamHandle, 2> origins_;  // by LegacyStream; made when they are needed
  EventHandle event_;
};

}  // namespace graphsink
