// Decisions of control flow, as the host takes them.
#pragma once

#include "base/at.h"
#include "device/device.h"

namespace graphsink {

// Which body runs next, by the value at `decision`; -1: none, as a loop is over. See DeviceNodes::control().
inline std::int32_t decide(TaskKind kind, const void* decision) {
  if (kind == TaskKind::choice) return *static_cast<const std::int32_t*>(decision);
  if (*static_cast<const bool*>(decision)) return 0;
  return kind == TaskKind::branch ? 1 : -1;
}

// Issues the bodies one after the other. `read` returns an address at which the host finds the decision, after a wait
// for the work that makes it.
inline void drive(Streams streams, TaskKind kind, FunctionRef<const void*()> read, const DeviceNodes::Bodies& bodies) {
  do {
    const std::int32_t body = decide(kind, read());
    if (kind == TaskKind::loop && body < 0) return;
    bodies(at(body), streams);
  } while (kind == TaskKind::loop);
}

}  // namespace graphsink
