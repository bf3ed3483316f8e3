#include "exec/capture_slot.h"

namespace graphsink {

bool CaptureSlot::capture(Device& device, Streams streams, FunctionRef<void(Streams)> issue) {
  failure_.reset();
  try {
    device.begin_capture(streams);
    issue(streams);
    graph_ = device.end_capture(streams);
    return true;
  } catch (const CaptureFailed& e) {
    device.cancel_capture(streams);
    failure_ = e;
    ++failures_;
    return false;
  } catch (...) {
    device.cancel_capture(streams);
    throw;
  }
}

}  // namespace graphsink
