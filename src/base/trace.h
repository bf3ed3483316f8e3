// NVTX ranges in the domain "graphsink"; nothing without the NVTX headers, a few nanoseconds without a profiler.
#pragma once

#ifdef GRAPHSINK_NVTX
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#endif

namespace graphsink {

// Work that a thread does in a range. Profilers can show and hide ranges by category.
enum class TraceCategory : unsigned {
  plan = 1,  // plans, and binds the plan to memory
  capture,
  launch,
  fallback,  // runs op by op what was to be a launch
  copy,      // between host and device, and between devices
  op,        // issues an op; live, or during a capture
};

#ifdef GRAPHSINK_NVTX

inline nvtxDomainHandle_t trace_domain() noexcept {
  static const nvtxDomainHandle_t handle = [] {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("graphsink");
    const char* const names[] = {"plan", "capture", "launch", "fallback", "copy", "op"};
    std::uint32_t category = 0;
    for (const char* name : names) nvtxDomainNameCategoryA(domain, ++category, name);
    return domain;
  }();
  return handle;
}

// The name of ranges. It is registered once, so that a profiler does not copy the text for each range.
class TraceName {
 public:
  explicit TraceName(const char* text) noexcept : handle_(nvtxDomainRegisterStringA(trace_domain(), text)) {}
  nvtxStringHandle_t handle() const { return handle_; }

 private:
  nvtxStringHandle_t handle_;  // null without a profiler
};

// A range from construction to destruction on the calling thread.
class TraceRange {
 public:
  TraceRange(TraceCategory category, const TraceName& name) noexcept {
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = static_cast<std::uint32_t>(category);
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = name.handle();
    nvtxDomainRangePushEx(trace_domain(), &event);
  }
  ~TraceRange() { nvtxDomainRangePop(trace_domain()); }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

#else

class TraceName {
 public:
  explicit TraceName(const char*) noexcept {}
};

class TraceRange {
 public:
  TraceRange(TraceCategory, const TraceName&) noexcept {}
  ~TraceRange() {}
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

#endif

// A range whose name is the same each time.
#define GRAPHSINK_TRACE(category, text)                 \
  static const ::graphsink::TraceName trace_name(text); \
  const ::graphsink::TraceRange trace_range(::graphsink::TraceCategory::category, trace_name)

}  // namespace graphsink
