#include "exec/capture/capture_slot.h"

namespace graphsink {

bool CaptureSlot::capture(DeviceCapture& device, Streams streams, FunctionRef<void(Streams)> issue,
                          std::unique_ptr<CapturedGraph> spare) {
  return capture([&] {
    try {
      device.begin_capture(streams);
      issue(streams);
      return device.end_capture(streams, std::move(spare));
    } catch (...) {
      device.leave_capture(streams);
      throw;
    }
  });
}

bool CaptureSlot::capture(FunctionRef<std::unique_ptr<CapturedGraph>()> make) {
  failure_.reset();
  try {
    graph_ = make();
    return true;
  } catch (const CaptureFailed& e) {
    drop(e);
    return false;
  }
}

void CaptureSlot::drop(const CaptureFailed& reason) {
  graph_.reset();
  failure_ = reason;
  ++failures_;
}

void CaptureSlot::refuse(const CaptureFailed& reason) {
  drop(reason);
  failures_ = kMaxFailures;
  is_final_ = true;
}

}  // namespace graphsink
