#include "exec/capture_slot.h"

namespace graphsink {

bool CaptureSlot::capture(Device& device, Streams streams, FunctionRef<void(Streams)> issue) {
  failure_.reset();
  try {
    device.begin_recording(streams);
    issue(streams);
    recording_ = device.end_recording(streams);
    return true;
  } catch (const RecordingFailed& e) {
    device.cancel_recording(streams);
    failure_ = e;
    ++failures_;
    return false;
  } catch (...) {
    device.cancel_recording(streams);
    throw;
  }
}

}  // namespace graphsink
