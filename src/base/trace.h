// NVTX ranges in the domain "graphsink"; nothing without the NVTX headers, a few nanoseconds without a profiler.
#pragma once

#ifdef GRAPHSINK_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace graphsink {

// A range from construction to destruction on the calling thread. `name` must outlive the program.
class TraceRange {
 public:
  explicit TraceRange(const char* name) noexcept {
#ifdef GRAPHSINK_NVTX
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    nvtxDomainRangePushEx(domain(), &event);
#else
    (void)name;
#endif
  }
  ~TraceRange() {
#ifdef GRAPHSINK_NVTX
    nvtxDomainRangePop(domain());
#endif
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
#ifdef GRAPHSINK_NVTX
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t handle = nvtxDomainCreateA("graphsink");
    return handle;
  }
#endif
};

}  // namespace graphsink
