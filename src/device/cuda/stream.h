// A non-blocking CUDA stream and the event with which it waits for others.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/handle.h"

namespace graphsink {

class CudaStream : public Stream {
 public:
  explicit CudaStream(Calls& calls) {
    CurrentDevice current(calls);
    // Non-blocking: work the user gives to the legacy stream neither waits for ours nor is refused while we record.
    calls.check(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    calls.check(cudaEventCreateWithFlags(event_.out(), cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  cudaStream_t get() const { return stream_.get(); }

  // Goes on only when everything given to `earlier` so far is done.
  void wait_for(const CudaStream& earlier, Calls& calls) {
    calls.check(cudaEventRecord(event_.get(), earlier.get()), "cudaEventRecord");
    calls.check(cudaStreamWaitEvent(get(), event_.get(), cudaEventWaitDefault), "cudaStreamWaitEvent");
  }

  // While recording: holds work that no other stream has waited for yet.
  bool is_open = false;

 private:
  StreamHandle stream_;
  EventHandle event_;
};

inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace graphsink
