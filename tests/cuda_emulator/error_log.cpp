// CUDA's error log: callbacks that are told of each call that fails.
#include <algorithm>
#include <string>

#include "runtime.h"

namespace emu {

// The format is that of the CUDA Programming Guide (Error Log Management, Output); the driver's texts after it are
// others. A callback may call no CUDA function.
void log_error(Runtime& r, const char* name, cudaError_t code) {
  if (r.log_callbacks.empty() || code == cudaErrorNotReady) return;
  const std::size_t thread = std::hash<std::thread::id>()(std::this_thread::get_id()) % 100000;
  std::string message = "[00:00:00.000][" + std::to_string(thread) + "][CUDA][E][" + name + "] " +
                        cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ")\n";
  for (const auto& entry : r.log_callbacks) {
    entry->callback(entry->data, cudaLogLevelError, message.data(), message.size());
  }
}

}  // namespace emu

namespace {

// These calls need no context: they tell of no earlier error, and leave no last error.
template <class F>
cudaError_t log_call(const char* name, F&& body) {
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
