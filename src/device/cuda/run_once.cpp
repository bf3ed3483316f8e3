#include "device/cuda/run_once.h"

#include <string>

#include "device/cuda/check.h"
#include "device/cuda/device.h"

namespace graphsink {

void run_once(CudaDevice& device, const char* what, std::size_t bytes,
              FunctionRef<void(cudaStream_t, std::byte*)> enqueue) {
  CurrentDevice current(device.calls());
  Memory scratch;
  try {
    scratch = device.allocate(bytes);
  } catch (const Error& e) {
    if (device.calls().is_lost()) throw;
    device.calls().log.warn({"the kernels of ", what, " are loaded by its first use: ", e.what()});
    return;
  }
  RelaxedCapture relaxed(device.calls());
  cudaStream_t stream = device.setup_stream().get();
  enqueue(stream, static_cast<std::byte*>(scratch.get()));
  device.calls().check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void run_once(const PrepareArgs& args, std::size_t bytes, FunctionRef<void(cudaStream_t, std::byte*)> enqueue) {
  // PrepareArgs::device is a Device*.
  run_once(static_cast<CudaDevice&>(*static_cast<Device*>(args.device)), std::string(args.op).c_str(), bytes, enqueue);
}

}  // namespace graphsink
