// lap: the clock that Program::time_ops() reads between ops.
#include "device/step_times.h"
#include "ir/system_ops.h"
#include "kernels/runtime/system_parts.h"
#include "kernels/support/kernel.h"

namespace graphsink {
namespace {

HD void take_lap(std::int64_t* last, Lap* lap) {
  const std::int64_t now = device_now();
  lap->ns += now - *last;
  ++lap->count;
  *last = now;
}

__global__ void lap_kernel(std::int64_t* last, Lap* lap) {
  wait_for_inputs();
  take_lap(last, lap);
}

void lap_cuda(CudaArgs& a) { a.launch(lap_kernel, Extent{}, Extent{}, 0, a.in_out<std::int64_t>(0), a.in_out<Lap>(1)); }

void lap_cpu(const CpuArgs& a) { take_lap(a.in_out<std::int64_t>(0), a.in_out<Lap>(1)); }

}  // namespace

// Without kernels_wait, so that the kernel behind it is not launched before it has ended.
const OpDef lap_op{.name = "lap", .prepare = load_kernels<lap_kernel>, .bodies = {lap_cpu, lap_cuda}};

}  // namespace graphsink
