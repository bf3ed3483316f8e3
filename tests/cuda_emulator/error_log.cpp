// CUDA's error log: callbacks that are told of each call that fails. The lines are those of the driver 580 on an H100,
// without the prefix that files of the log have: first why the call fails, which many calls do not say, then always
// "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuMemAlloc_v2" with the name of the driver's function.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "runtime.h"

namespace emu {
namespace {

thread_local const char* driver_name = nullptr;  // of the call that the thread is in

struct DriverName {
  std::string_view call, function;
};
// Those that the log of an H100 has. Copies are named where their memory is known.
constexpr DriverName kDriverNames[] = {
    {"cudaDeviceSetLimit", "cuCtxSetLimit"},
    {"cudaDeviceSynchronize", "cuCtxSynchronize_v2"},
    {"cudaEventElapsedTime", "cuEventElapsedTime_v2"},
    {"cudaFree", "cuMemFree_v2"},
    {"cudaFreeAsync", "cuMemFreeAsync"},
    {"cudaGraphAddDependencies", "cuGraphAddDependencies_v2"},
    {"cudaGraphAddNode", "cuGraphAddNode_v2"},
    {"cudaGraphExecUpdate", "cuGraphExecUpdate_v2"},
    {"cudaGraphInstantiate", "cuGraphInstantiateWithFlags"},
    {"cudaGraphRemoveDependencies", "cuGraphRemoveDependencies_v2"},
    {"cudaHostAlloc", "cuMemHostAlloc"},
    {"cudaHostRegister", "cuMemHostRegister_v2"},
    {"cudaLaunchKernelExC", "cuLaunchKernelEx"},
    {"cudaMalloc", "cuMemAlloc_v2"},
    {"cudaMallocArray", "cuArray3DCreate_v2"},
    {"cudaMallocAsync", "cuMemAllocAsync"},
    {"cudaMallocHost", "cuMemHostAlloc"},
    {"cudaMallocManaged", "cuMemAllocManaged"},
    {"cudaMallocPitch", "cuMemAllocPitch_v2"},
    {"cudaMemset", "cuMemsetD8_v2"},
    {"cudaMemsetAsync", "cuMemsetD8Async"},
    {"cudaStreamBeginCapture", "cuStreamBeginCapture_v2"},
    {"cudaStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3"},
    {"cudaStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_v2"},
};

// Any other is taken for a function of the same name.
std::string driver_name_of(std::string_view call) {
  for (const DriverName& known : kDriverNames) {
    if (known.call == call) return std::string(known.function);
  }
  constexpr std::string_view kPrefix = "cuda";
  return call.starts_with(kPrefix) ? "cu" + std::string(call.substr(kPrefix.size())) : std::string(call);
}

struct CodeName {
  int code;
  const char* name;
};
constexpr CodeName kCodeNames[] = {
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"},
    {CUDA_ERROR_LOSSY_QUERY, "CUDA_ERROR_LOSSY_QUERY"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE"},
};

const char* name_of_code(int code) {
  for (const CodeName& known : kCodeNames) {
    if (known.code == code) return known.name;
  }
  return "CUDA_ERROR_UNKNOWN";
}

// What the runtime finds out before it asks the driver, which then has nothing to return.
bool is_found_by_runtime(cudaError_t code) {
  return code == cudaErrorInvalidDeviceFunction || code == cudaErrorInvalidMemcpyDirection ||
         code == cudaErrorInvalidDevice;
}

// A callback may call no CUDA function.
void send(Runtime& r, std::string line) {
  for (const auto& entry : r.log_callbacks) {
    entry->callback(entry->data, cudaLogLevelError, line.data(), line.size());
  }
}

void send_explanations(Runtime& r) {
  for (const std::string& line : r.log_explanations) send(r, line);
}

void send_returned(Runtime& r, int code, const std::string& function) {
  send(r, "Returning " + std::to_string(code) + " (" + name_of_code(code) + ") from " + function);
}

}  // namespace

void begin_log() { driver_name = nullptr; }

void end_log(Runtime& r) { r.log_explanations.clear(); }

cudaError_t explain(cudaError_t code, std::string why) {
  runtime().log_explanations.push_back(std::move(why));
  return code;
}

std::string address_text(const void* address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx",
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(address)));
  return text;
}

void use_driver_name(const char* name) { driver_name = name; }

void log_error(Runtime& r, const char* name, cudaError_t code) {
  if (r.log_callbacks.empty()) return;
  send_explanations(r);
  if (is_found_by_runtime(code)) return;
  send_returned(r, code, driver_name == nullptr ? driver_name_of(name) : driver_name);
}

void log_driver_error(Runtime& r, const char* name, int code) {
  if (r.log_callbacks.empty() || code == CUDA_SUCCESS) return;
  send_explanations(r);
  send_returned(r, code, name);
}

}  // namespace emu

namespace {

// These calls need no context: they tell of no earlier error, and leave no last error.
template <class F>
cudaError_t log_call(const char* name, F&& body) {
  const emu::InCall in_call;
  emu::Runtime& r = emu::runtime();
  const emu::Lock lock(r.mutex);
  cudaError_t code = emu::enter_call(r, name, emu::When::kAlways);
  if (code == cudaSuccess) code = body(r);
  emu::leave_untracked(r, name, code);
  return code;
}

}  // namespace

cudaError_t cudaLogsRegisterCallback(cudaLogsCallback_t callback, void* data, cudaLogsCallbackHandle* handle) {
  return log_call("cudaLogsRegisterCallback", [&](emu::Runtime& r) {
    if (callback == nullptr) return cudaErrorInvalidValue;
    r.log_callbacks.push_back(std::make_unique<CUlogsCallbackEntry_st>(CUlogsCallbackEntry_st{callback, data}));
    if (handle != nullptr) *handle = r.log_callbacks.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaLogsUnregisterCallback(cudaLogsCallbackHandle handle) {
  return log_call("cudaLogsUnregisterCallback", [&](emu::Runtime& r) {
    const auto is_it = [&](const auto& entry) { return entry.get() == handle; };
    return std::erase_if(r.log_callbacks, is_it) == 1 ? cudaSuccess : cudaErrorInvalidValue;
  });
}
