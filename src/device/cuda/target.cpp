#include "device/cuda/target.h"

#include "device/cuda/device.h"
#include "device/cuda/open.h"

namespace graphsink {

std::shared_ptr<Device> open_cuda_device(int index, const Log& log, std::span<Device* const> beside,
                                         bool flush_denormals) {
  return std::make_shared<CudaDevice>(index, log, beside, flush_denormals);
}

int count_cuda_devices() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::shared_ptr<Calls> open_calls(int index, const Log& log, const Calls* beside) {
  int count = 0;
  auto calls = std::make_shared<Calls>(index, false, log);
  calls->check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (index < 0 || index >= count) {
    throw Error(to_string(DeviceId{DeviceKind::cuda, index}), Where(),
                "there are " + std::to_string(count) + " CUDA devices",
                count == 0 ? "compile for gs::cpu()"
                           : "use an index below " + std::to_string(count) + ", or compile for gs::cpu()",
                ErrorCode::unavailable);
  }
  return std::make_shared<Calls>(index, count == 1, log, beside);
}

namespace {

void enable_access(Calls& calls, int peer) {
  CurrentDevice current(calls);
  cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {  // enabled earlier, for example by another program
    (void)cudaGetLastError();
    code = cudaSuccess;
  }
  calls.check(code, "cudaDeviceEnablePeerAccess");
}

}  // namespace

bool link_devices(Calls& a, Calls& b) {
  int there = 0, back = 0;
  a.check(cudaDeviceCanAccessPeer(&there, a.device(), b.device()), "cudaDeviceCanAccessPeer");
  a.check(cudaDeviceCanAccessPeer(&back, b.device(), a.device()), "cudaDeviceCanAccessPeer");
  if (!there || !back) return false;
  enable_access(a, b.device());
  enable_access(b, a.device());
  a.peers.push_back(b.device());
  b.peers.push_back(a.device());
  return true;
}

Target read_target(Calls& calls) {
  int major = 0, minor = 0, driver = 0;
  calls.check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, calls.device()),
              "cudaDeviceGetAttribute");
  calls.check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, calls.device()),
              "cudaDeviceGetAttribute");
  calls.check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cudaDeviceProp properties;
  calls.check(cudaGetDeviceProperties(&properties, calls.device()), "cudaGetDeviceProperties");

  constexpr int kFirstWithElse =
      12080;  // conditional nodes are older, but have no else branch, and can hang when empty
  Target target = Target::cuda13(10 * major + minor);
  target.id = cuda(calls.device());
  target.name = properties.name;
  target.conditional_nodes = driver >= kFirstWithElse;
  return target;
}

}  // namespace graphsink
