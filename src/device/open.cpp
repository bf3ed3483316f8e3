#include "device/cpu/cpu_device.h"
#include "device/device.h"
#ifdef GRAPHSINK_CUDA
#include "device/cuda/open.h"
#endif

namespace graphsink {

std::shared_ptr<Device> open_device(DeviceId id, const Log& log, std::span<Device* const> beside,
                                    const CpuOptions& options) {
  for (const Device* other : beside) {
    DeviceId there = other->target().id;
    if (id.kind != DeviceKind::cpu && there.kind != DeviceKind::cpu && id != there) continue;
    throw Error(to_string(id), Where(), "cannot be used beside " + to_string(there),
                "name several CUDA devices, each once");
  }
  if (id.kind == DeviceKind::cpu) return std::make_shared<CpuDevice>(log, options);
#ifdef GRAPHSINK_CUDA
  return open_cuda_device(id.index, log, beside, options.flush_denormals);
#else
  throw Error(to_string(id), Where(), "this build of graphsink has no CUDA support",
              "build it with the preset cuda, which needs CUDA Toolkit 13, or compile for gs::cpu()",
              ErrorCode::unavailable);
#endif
}

int cuda_device_count() noexcept {
#ifdef GRAPHSINK_CUDA
  return count_cuda_devices();
#else
  return 0;
#endif
}

}  // namespace graphsink
