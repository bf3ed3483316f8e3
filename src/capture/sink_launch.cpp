// Launches of what a SinkCache has captured.
#include "base/trace.h"
#include "capture/sink_cache_impl.h"
#include "device/cuda/step_loop.h"

namespace graphsink {

std::int64_t SinkCache::Impl::launch(Sunk& sunk, cudaStream_t stream, std::int64_t steps) {
  GRAPHSINK_TRACE(launch, "launch");
  std::int64_t launched = steps > 1 ? launch_loop(sunk, stream, steps) : 0;
  while (launched < steps && sunk.slot.is_captured()) launched += launch_step(sunk, stream);
  return launched;
}

std::int64_t SinkCache::Impl::launch_loop(Sunk& sunk, cudaStream_t stream, std::int64_t steps) {
  if (!sunk.loop) sunk.loop = std::make_unique<CaptureSlot>();
  CaptureSlot& loop = *sunk.loop;
  if (loop.is_refused()) return 0;
  if (!loop.is_captured()) {
    Calls& calls = *sunk.device.calls;
    const bool captured = loop.capture([&] {
      return as_capture(sunk, [&]() -> std::unique_ptr<CapturedGraph> {
        return StepLoop::make(sunk.graph(), sunk.device.capture.origin(), calls);
      });
    });
    if (!captured) {
      note_failure(sunk, *loop.failure(), kStepByStep);
      return 0;
    }
    node_names_.add(loop.graph(), to_string(sunk.key));
    trim(nullptr);
  }
  const char* call = nullptr;
  const cudaError_t code = static_cast<StepLoop&>(loop.graph()).launch(stream, steps, call);
  if (code != cudaSuccess) {
    drop(sunk, loop, code, call, kStepByStep);
    return 0;
  }
  ++counts_.loops;
  note_launch(sunk, stream);
  return steps;
}

std::int64_t SinkCache::Impl::launch_step(Sunk& sunk, cudaStream_t stream) {
  if (const cudaError_t code = cudaGraphLaunch(sunk.graph().exec(), stream); code != cudaSuccess) {
    drop(sunk, sunk.slot, code, "cudaGraphLaunch", kAsItIs);
    return 0;
  }
  note_launch(sunk, stream);
  return 1;
}

void SinkCache::Impl::note_launch(Sunk& sunk, cudaStream_t stream) {
  ++counts_.launches;
  // Without the event the key may be dropped while it runs, which CUDA allows.
  if (cudaEventRecord(sunk.launched.get(), stream) != cudaSuccess) (void)cudaGetLastError();
}

void SinkCache::Impl::drop(Sunk& sunk, CaptureSlot& slot, cudaError_t code, const char* call, const char* consequence) {
  if (is_sticky(code)) sunk.device.calls->fail(code, call);
  (void)cudaGetLastError();
  slot.drop(CaptureFailed("capture", Where(), describe(code, call),
                          "see this error in the documentation of the CUDA runtime"));
  sunk.plan_next_attempt();
  note_failure(sunk, *slot.failure(), consequence);
}

}  // namespace graphsink
